"""The feature flags of the reference that mean something here or at least do no harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LONG_ACKS: Final = "js_ack_fc_v2"
"""Acks and flow control are named with the domain and a hash of the account."""
DEFAULTS: Final[Mapping[str, bool]] = {
    LONG_ACKS: False,
    "js_raft_delete_range": False,  # of replicated streams only
}


def merged(chosen: Mapping[str, bool]) -> dict[str, bool]:
    """Every known flag as it is set."""
    return {name: chosen.get(name, default) for name, default in DEFAULTS.items()}


def is_on(chosen: Mapping[str, bool], name: str) -> bool:
    return merged(chosen)[name]


def told(chosen: Mapping[str, bool]) -> list[str]:
    """What the start says of the flags that are configured."""
    if not chosen:
        return []
    known = [f"{name} ({way(chosen[name])})" for name in sorted(chosen) if name in DEFAULTS]
    unknown = [name for name in sorted(chosen) if name not in DEFAULTS]
    lines = ["  Feature flags:", f"    Configured:    {', '.join(known) or 'none'}"]
    if unknown:
        lines.append(f"    Unsupported:   {', '.join(unknown)}")
    return lines


def way(on: bool) -> str:
    return "opt-in" if on else "disabled"
