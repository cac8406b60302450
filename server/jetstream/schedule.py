"""Message schedules: what a pattern means, which headers one may carry, and when each fires.

`Schedules` keeps one schedule for each subject of a stream, as the store has them: a message with
`Nats-Schedule` replaces the one before on its subject.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from config.duration import DurationError, parse_duration
from server.jetstream import cron, errors, headers
from server.jetstream.gotime import TimeError, normal_time, time_ns, time_text
from server.jetstream.ttl import TtlError, ttl_seconds

PATTERN: Final = b"Nats-Schedule"
ZONE: Final = b"Nats-Schedule-Time-Zone"
TTL: Final = b"Nats-Schedule-TTL"
TARGET: Final = b"Nats-Schedule-Target"
SOURCE: Final = b"Nats-Schedule-Source"
ROLLUP: Final = b"Nats-Schedule-Rollup"
NEXT: Final = b"Nats-Schedule-Next"
SCHEDULER: Final = b"Nats-Scheduler"
PURGE: Final = b"purge"
SECOND_NS: Final = 1_000_000_000
GRANULARITY_NS: Final = 250_000_000
ENTRIES_LEAST: Final = 64
NAMED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


@dataclass(frozen=True, slots=True)
class Due:
    """When a schedule fires next."""

    at_ns: int
    text: str
    repeats: bool


def rounded_second_ns(ns: int) -> int:
    return (ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS


def due_of(block: bytes, after_ns: int, now_ns: int) -> Due | None:
    """The schedule of a header block after a time; None without one. ApiError for a bad one.

    Times that went by while nobody looked are left out but one.
    """
    zone_name = headers.value(block, ZONE)
    zone = None if zone_name is None else zone_of(zone_name)
    pattern = headers.text(block, PATTERN)
    if not pattern:
        return None
    try:
        return parse(pattern, zone, after_ns, now_ns)
    except (TimeError, DurationError, cron.CronError, ValueError, OverflowError):
        raise errors.MESSAGE_SCHEDULES_PATTERN_INVALID() from None


def zone_of(name: bytes) -> tzinfo:
    text = name.decode("utf-8", "surrogateescape")
    try:
        if not text or text == "Local":
            raise ZoneInfoNotFoundError(text)
        return UTC if text == "UTC" else ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise errors.MESSAGE_SCHEDULES_TIME_ZONE_INVALID() from None


def parse(pattern: str, zone: tzinfo | None, after_ns: int, now_ns: int) -> Due:
    if pattern.startswith("@at "):
        if zone is not None:
            raise ValueError("a time zone is for cron patterns only")
        at_ns = time_ns(normal_time(pattern[4:]))
        return Due(at_ns, time_text(at_ns), False)
    if pattern.startswith("@every "):
        if zone is not None:
            raise ValueError("a time zone is for cron patterns only")
        return every(parse_duration(pattern[7:]), after_ns, now_ns)
    pattern = NAMED.get(pattern, pattern)
    moment = cron.next_time(pattern, zone or UTC, after_ns)
    if moment.timestamp() * SECOND_NS < now_ns:
        moment = cron.next_time(pattern, zone or UTC, rounded_second_ns(now_ns))
    return Due(int(moment.timestamp()) * SECOND_NS, moment_text(moment), True)


def every(interval_ns: int, after_ns: int, now_ns: int) -> Due:
    if interval_ns < SECOND_NS:
        raise ValueError("an interval is at least a second")
    next_ns = rounded_second_ns(after_ns) + interval_ns
    if next_ns < now_ns:
        next_ns = rounded_second_ns(now_ns) + interval_ns
    return Due(next_ns, time_text(next_ns), True)


def moment_text(moment: datetime) -> str:
    text = moment.isoformat(timespec="seconds")
    return text[:-6] + "Z" if text.endswith("+00:00") else text


def bad_ttl(block: bytes) -> bool:
    try:
        ttl_seconds(headers.value(block, TTL) or b"")
    except TtlError:
        return True
    return False


@dataclass(slots=True)
class Schedule:
    seq: int
    at_ns: int


class Schedules:
    """The schedules of one stream, by subject; the earliest first.

    Entries that were replaced, and schedules whose messages were removed, are left out whenever
    there are twice as many as the last look left.
    """

    def __init__(self, lives: Callable[[int], bool]) -> None:
        """`lives` says whether the message with that sequence is still there."""
        self.by_subject: dict[str, Schedule] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._lives = lives
        self._entries_max = ENTRIES_LEAST
        self._schedules_max = ENTRIES_LEAST

    def put(self, subject: str, seq: int, at_ns: int) -> None:
        self.by_subject[subject] = Schedule(seq, at_ns)
        if len(self.by_subject) > self._schedules_max:
            self._leave_out_removed()
        heapq.heappush(self._heap, (at_ns, seq, subject))
        if len(self._heap) > self._entries_max:
            self._leave_out_replaced()

    def remove(self, subject: str) -> None:
        self.by_subject.pop(subject, None)

    def take_due(self, now_ns: int, most: int) -> list[tuple[str, Schedule]]:
        """Those whose time has come, by sequence; each stays until it is put anew or removed."""
        due: list[tuple[str, Schedule]] = []
        while self._heap and self._heap[0][0] <= now_ns and len(due) < most:
            entry = heapq.heappop(self._heap)
            if self._holds(entry):
                due.append((entry[2], self.by_subject[entry[2]]))
        return sorted(due, key=lambda each: each[1].seq)

    def next_ns(self) -> int | None:
        while self._heap:
            if self._holds(self._heap[0]):
                return self._heap[0][0]
            heapq.heappop(self._heap)
        return None

    def __len__(self) -> int:
        """Entries, with those that were replaced."""
        return len(self._heap)

    def _holds(self, entry: tuple[int, int, str]) -> bool:
        known = self.by_subject.get(entry[2])
        return known is not None and (known.at_ns, known.seq) == entry[:2]

    def _leave_out_removed(self) -> None:
        gone = [subject for subject, known in self.by_subject.items() if not self._lives(known.seq)]
        for subject in gone:
            del self.by_subject[subject]
        self._schedules_max = max(2 * len(self.by_subject), ENTRIES_LEAST)

    def _leave_out_replaced(self) -> None:
        self._heap = list({entry for entry in self._heap if self._holds(entry)})
        heapq.heapify(self._heap)
        self._entries_max = max(2 * len(self._heap), ENTRIES_LEAST)
