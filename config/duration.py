"""Durations as Go writes them: "1m30s", "250ms", "-1.5h"; whole numbers of nanoseconds here."""

from __future__ import annotations

import re
from typing import Final

_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_MAX_NS: Final = 2**63 - 1
_PART: Final = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")


class DurationError(ValueError):
    """The text is not a duration; the message is the one that Go gives."""


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration."""
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return 0
    if not unsigned:
        raise DurationError(f"time: invalid duration {quoted}")
    total, at = 0, 0
    while at < len(unsigned):
        part, at = _part(unsigned, at, quoted)
        total += part
        if total > _MAX_NS + (text[0] == "-"):
            raise DurationError(f"time: invalid duration {quoted}")
    return -total if text[0] == "-" else total


def _part(text: str, at: int, quoted: str) -> tuple[int, int]:
    match = _PART.match(text, at)
    if match is None:
        raise DurationError(f"time: invalid duration {quoted}")
    whole, fraction, unit = match.groups()
    if not whole and (fraction is None or fraction == "."):
        raise DurationError(f"time: invalid duration {quoted}")
    if not unit:
        raise DurationError(f"time: missing unit in duration {quoted}")
    if unit not in _UNITS_NS:
        raise DurationError(f'time: unknown unit "{unit}" in duration {quoted}')
    unit_ns = _UNITS_NS[unit]
    nanoseconds = int(whole[:20] or "0") * unit_ns
    if fraction and len(fraction) > 1:
        digits = fraction[1:19]
        nanoseconds += int(digits) * unit_ns // 10 ** len(digits)
    return nanoseconds, match.end()


def format_duration(nanoseconds: int) -> str:
    """As Go prints it: the largest units without leading zeros, fractions of a second if any."""
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest == 0:
        return "0s"
    if rest < 1_000_000_000:
        for unit, unit_ns in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if rest >= unit_ns:
                return f"{sign}{_decimal(rest, unit_ns)}{unit}"
    minutes, rest = divmod(rest, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, 1_000_000_000)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    return f"{sign}{minutes}m{text}" if minutes else f"{sign}{text}"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(unit)) - 1}d}".rstrip("0")
