"""Times and durations as the reference's tools expect to read them."""

from __future__ import annotations

from datetime import UTC, datetime

NS_PER_S = 1_000_000_000


def rfc3339(unix_ns: int) -> str:
    """UTC with nanoseconds and without trailing zeros: `2026-01-02T03:04:05.6Z`."""
    seconds, nanoseconds = divmod(unix_ns, NS_PER_S)
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    return f"{stamp}{fraction}Z"


def uptime(duration_ns: int) -> str:
    """`1y2d3h4m5s`, from the largest unit that is not zero down to seconds."""
    minutes, seconds = divmod(max(duration_ns, 0) // NS_PER_S, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    years, year_days = divmod(days, 365)
    if years:
        return f"{years}y{year_days}d{hours}h{minutes}m{seconds}s"
    if days:
        return f"{days}d{hours}h{minutes}m{seconds}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def duration(duration_ns: int) -> str:
    """A Go duration: `1h2m3.5s`, `2.5ms`, `17µs`, `3ns`, `0s`."""
    if duration_ns < 0:
        return "-" + duration(-duration_ns)
    if duration_ns == 0:
        return "0s"
    for unit, size_ns in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if duration_ns < size_ns * 1_000:
            return _decimal(duration_ns, size_ns) + unit
    minutes, rest_ns = divmod(duration_ns, 60 * NS_PER_S)
    text = _decimal(rest_ns, NS_PER_S) + "s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = (f"{hours}h" if hours else "") + f"{minutes}m{text}"
    return text


def _decimal(value: int, unit: int) -> str:
    whole, part = divmod(value, unit)
    if not part:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}." + f"{part:0{digits}d}".rstrip("0")
