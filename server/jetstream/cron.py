"""Six-field cron patterns (second minute hour day month weekday): when one fires next.

Local times are walked as the reference walks them: fields from the month down, each field moved on
until it matches, everything smaller reset on the first move, and over again after a wrap-around.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

YEARS_AHEAD_MAX: Final = 5
MONTH_NAMES: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
DAY_NAMES: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


class CronError(ValueError):
    """The text is not a cron pattern, or it never fires."""


@dataclass(frozen=True, slots=True)
class Range:
    low: int
    high: int
    names: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Field:
    """The values of one field; `any` when a star stood in it."""

    values: frozenset[int]
    any: bool

    def __contains__(self, value: int) -> bool:
        return value in self.values


RANGES: Final = (
    Range(0, 59, {}),
    Range(0, 59, {}),
    Range(0, 23, {}),
    Range(1, 31, {}),
    Range(1, 12, {name: number for number, name in enumerate(MONTH_NAMES, 1)}),
    Range(0, 6, {name: number for number, name in enumerate(DAY_NAMES)}),
)


@dataclass(frozen=True, slots=True)
class Cron:
    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    def matches_day(self, moment: datetime) -> bool:
        in_month = moment.day in self.day
        in_week = (moment.weekday() + 1) % 7 in self.weekday
        if self.day.any or self.weekday.any:
            return in_month and in_week
        return in_month or in_week


def parse(pattern: str) -> Cron:
    fields = pattern.split()
    if len(fields) != len(RANGES):
        raise CronError(f"pattern requires 6 fields, got {len(fields)}")
    return Cron(*(parse_field(text, span) for text, span in zip(fields, RANGES, strict=True)))


def parse_field(text: str, span: Range) -> Field:
    values: set[int] = set()
    star = False
    for part in filter(None, text.split(",")):
        found, is_star = parse_part(part, span)
        values.update(found)
        star = star or is_star
    if not values:
        # The reference walks five years of seconds to find that this never fires.
        raise CronError(f"no value: {text}")
    return Field(frozenset(values), star)


def parse_part(text: str, span: Range) -> tuple[range, bool]:
    """`*`, `3`, `3-9`, each with an optional `/step`."""
    bounds_text, *steps = text.split("/")
    bounds = bounds_text.split("-")
    if len(steps) > 1 or (len(bounds) > 2 and bounds[0] not in ("*", "?")):
        raise CronError(f"not a range: {text}")
    step = parse_number(steps[0], {}) if steps else 1
    star = bounds[0] in ("*", "?")
    low = span.low if star else parse_number(bounds[0], span.names)
    open_ended = star or (steps and len(bounds) == 1)
    high = span.high if open_ended else parse_number(bounds[-1], span.names)
    if not span.low <= low <= high <= span.high or step == 0:
        raise CronError(f"out of range: {text}")
    return range(low, high + 1, step), star and step == 1


def parse_number(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    digits = text[1:] if text[:1] == "+" else text
    if not (digits.isdigit() and digits.isascii()):
        raise CronError(f"not a number: {text}")
    return int(digits)


def next_time(pattern: str, zone: tzinfo, after_ns: int) -> datetime:
    """The first second after `after_ns` that matches, with `zone`."""
    cron = parse(pattern)
    start = datetime.fromtimestamp(after_ns // 1_000_000_000 + 1, UTC).astimezone(zone)
    walk = Walk(cron, zone, start)
    while not walk.settled():
        if walk.moment.year > start.year + YEARS_AHEAD_MAX:
            raise CronError("pattern exceeds maximum range")
    return walk.moment


class Walk:
    """One search; `moment` only moves forward."""

    def __init__(self, cron: Cron, zone: tzinfo, start: datetime) -> None:
        self.cron = cron
        self.zone = zone
        self.moment = start
        self.truncated = False

    def settled(self) -> bool:
        """Move each field in turn; False after a wrap-around, which asks for another round."""
        return self.month() and self.day() and self.hour() and self.minute() and self.second()

    def cut(self, **smaller: int) -> None:
        """The first move of a field begins at the start of its unit."""
        if not self.truncated:
            self.truncated = True
            self.moment = self.local(self.moment.replace(microsecond=0, tzinfo=None, **smaller))

    def local(self, wall: datetime) -> datetime:
        """A wall-clock time of the zone; one that a clock change skips becomes the one after."""
        return wall.replace(tzinfo=self.zone).astimezone(UTC).astimezone(self.zone)

    def later(self, step: timedelta) -> datetime:
        return (self.moment.astimezone(UTC) + step).astimezone(self.zone)

    def month(self) -> bool:
        while self.moment.month not in self.cron.month:
            self.cut(day=1, hour=0, minute=0, second=0)
            wall = self.moment.replace(tzinfo=None)
            days = monthrange(wall.year, wall.month)[1]
            self.moment = self.local(wall + timedelta(days=days))
            if self.moment.month == 1:
                return False
        return True

    def day(self) -> bool:
        while not self.cron.matches_day(self.moment):
            self.cut(hour=0, minute=0, second=0)
            self.moment = self.local(self.moment.replace(tzinfo=None) + timedelta(days=1))
            if self.moment.day == 1:
                return False
        return True

    def hour(self) -> bool:
        while self.moment.hour not in self.cron.hour:
            self.cut(minute=0, second=0)
            self.moment = self.later(timedelta(hours=1))
            if self.moment.hour == 0:
                return False
        return True

    def minute(self) -> bool:
        while self.moment.minute not in self.cron.minute:
            self.cut(second=0)
            self.moment = self.later(timedelta(minutes=1))
            if self.moment.minute == 0:
                return False
        return True

    def second(self) -> bool:
        while self.moment.second not in self.cron.second:
            self.cut()
            self.moment = self.later(timedelta(seconds=1))
            if self.moment.second == 0:
                return False
        return True
