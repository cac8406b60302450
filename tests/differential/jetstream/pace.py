"""The same flow for a slower machine: every time in it longer, in the same proportion."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

TIMES = {
    "ack_wait",
    "after_ms",
    "backoff",
    "delay",
    "expires",
    "idle_heartbeat",
    "inactive_threshold",
    "max_age",
    "ms",
    "priority_timeout",
}
DELAY = re.compile(rb'("delay": )(\d+)')


def slower(value: Any, factor: int, is_time: bool = False) -> Any:
    """Steps, the bodies of their requests and what they wait."""
    if factor == 1:
        return value
    if isinstance(value, dict):
        return {key: slower(item, factor, key in TIMES) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(slower(item, factor, is_time) for item in value)
    if isinstance(value, bytes):
        return DELAY.sub(lambda found: b"%b%d" % (found[1], int(found[2]) * factor), value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            each.name: slower(getattr(value, each.name), factor, each.name in TIMES)
            for each in fields(value)
        }
        return replace(value, **changed)
    return value * factor if is_time and type(value) is int else value
