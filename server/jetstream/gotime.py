"""Times and durations in the reference's spelling: RFC 3339 with as many digits as needed."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from functools import lru_cache

ZERO_TIME = "0001-01-01T00:00:00Z"
LAYOUT = '"2006-01-02T15:04:05Z07:00"'
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_NS = 1_000_000_000
DAY_SECONDS = 86_400
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
NS_MAX = 2**63 - 2
"""A store is asked for what comes behind a time as well."""
YEARS_SECONDS = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999."""
PARTS = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d{2}"),
    ("-", "-"),
    ("02", r"\d{2}"),
    ("T", "T"),
    ("15", r"\d{2}"),
    (":", ":"),
    ("04", r"\d{2}"),
    (":", ":"),
    ("05", r"\d{2}"),
    ("Z07:00", r"(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})"),
)
WHOLE = re.compile("".join(f"({pattern})" for _, pattern in PARTS))


class TimeError(Exception):
    """A text that is no time."""


def normal_time(text: str) -> str:
    """The text as the reference would write the time it reads from it; TimeError if none."""
    found = WHOLE.match(text)
    if not found:
        raise TimeError(missing_part(text))
    if found.end() != len(text):
        raise TimeError(f'parsing time "{text}": extra text: "{text[found.end() :]}"')
    year, month, day = int(found[1]), int(found[3]), int(found[5])
    hour, minute, second = int(found[7]), int(found[9]), int(found[11])
    for bad, name in (
        (not 1 <= month <= 12, "month"),
        (not 1 <= month <= 12 or not 1 <= day <= monthrange(year or CYCLE_YEARS, month)[1], "day"),
        (hour > 23, "hour"),
        (minute > 59, "minute"),
        (second > 59, "second"),
    ):
        if bad:
            raise TimeError(f'parsing time "{text}": {name} out of range')
    fraction, zone = split_zone(found[12])
    return text[:19] + fraction + zone


def split_zone(tail: str) -> tuple[str, str]:
    at = next(i for i, c in enumerate(tail) if c in "Z+-")
    fraction = tail[1:at][:9].rstrip("0")
    zone = "Z" if tail[at:] in ("Z", "+00:00", "-00:00") else tail[at:]
    return ("." + fraction if fraction else ""), zone


def missing_part(text: str) -> str:
    at = 0
    for name, pattern in PARTS:
        found = re.compile(pattern).match(text, at)
        if not found:
            return f'parsing time "{text}" as {LAYOUT}: cannot parse "{text[at:]}" as "{name}"'
        at = found.end()
    return f'parsing time "{text}"'


def time_ns(text: str) -> int:
    """Nanoseconds since 1970 of a time in normal spelling."""
    found = WHOLE.fullmatch(text)
    if not found:
        raise TimeError(missing_part(text))
    tail = found[12]
    at = next(i for i, c in enumerate(tail) if c in "Z+-")
    year = int(found[1])
    # The calendar repeats after 400 years, and Python has no year 0.
    moment = datetime.fromisoformat(f"{year or CYCLE_YEARS:04}{text[4:19]}+00:00")
    days = (moment - EPOCH).days - (0 if year else CYCLE_DAYS)
    seconds = days * DAY_SECONDS + (moment - EPOCH).seconds - offset_seconds(tail[at:])
    return seconds * SECOND_NS + int(tail[1:at][:9].ljust(9, "0"))


def offset_seconds(zone: str) -> int:
    """How far a zone is ahead of UTC."""
    if zone == "Z":
        return 0
    ahead = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
    return -ahead if zone[0] == "-" else ahead


def store_ns(text: str) -> int:
    """The same for a store, whose clock has 64 bits: what is beyond is before or behind it all."""
    return min(max(time_ns(text), -(2**63)), NS_MAX)


def time_text(ns: int) -> str:
    """A time in UTC, RFC 3339 with the digits it needs."""
    seconds, rest = divmod(ns, SECOND_NS)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{second_text(seconds)}{fraction}Z"


@lru_cache(maxsize=1024)
def second_text(seconds: int) -> str:
    """Times shown together share their seconds, and a date costs more than its fraction."""
    least, most = YEARS_SECONDS
    moment = EPOCH + timedelta(seconds=min(max(seconds, least), most))
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text:0>19}"


def shown_time(ns: int) -> str:
    """As `time_text`, the reference's zero time for 0 (nothing was stored yet)."""
    return time_text(ns) if ns else ZERO_TIME


def duration_text(ns: int) -> str:
    """A duration as Go's String shows it: 1h2m3.5s, 1.5ms."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    for unit, name in ((1, "ns"), (1000, "µs"), (1_000_000, "ms")):
        if ns < unit * 1000:
            return f"{sign}{trimmed(ns, unit)}{name}"
    minutes, rest = divmod(ns, 60 * SECOND_NS)
    hours, minutes = divmod(minutes, 60)
    text = f"{trimmed(rest, SECOND_NS)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def trimmed(ns: int, unit: int) -> str:
    whole, rest = divmod(ns, unit)
    digits = len(str(unit)) - 1
    fraction = f"{rest:0{digits}d}".rstrip("0") if digits else ""
    return f"{whole}.{fraction}" if fraction else str(whole)
