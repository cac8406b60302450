"""When schedules fire: patterns, time zones, clock changes, what was missed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from server.jetstream import cron, schedule
from server.jetstream.schedule import Schedules

SECOND_NS = 1_000_000_000


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * SECOND_NS


def next_text(pattern: str, after: str, zone: str = "") -> str:
    where = schedule.zone_of(zone.encode()) if zone else None
    return schedule.parse(pattern, where, ns(after), ns(after)).text


@pytest.mark.feature("3.032")
@pytest.mark.parametrize(
    ("pattern", "after", "expected"),
    [
        ("@at 2031-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"),
        ("@at 2031-01-01T00:00:00+02:00", "2030-01-01T00:00:00Z", "2030-12-31T22:00:00Z"),
        ("@every 90s", "2030-01-01T00:00:00Z", "2030-01-01T00:01:30Z"),
        ("@hourly", "2030-01-01T00:00:00Z", "2030-01-01T01:00:00Z"),
        ("@daily", "2030-01-31T00:00:00Z", "2030-02-01T00:00:00Z"),
        ("@weekly", "2030-01-01T00:00:00Z", "2030-01-06T00:00:00Z"),
        ("@monthly", "2030-12-01T00:00:00Z", "2031-01-01T00:00:00Z"),
        ("@yearly", "2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"),
        ("*/15 * * * * *", "2030-01-01T00:00:07Z", "2030-01-01T00:00:15Z"),
        ("0 30 9 * * mon-fri", "2030-01-05T00:00:00Z", "2030-01-07T09:30:00Z"),
        ("0 0 0 29 2 *", "2030-01-01T00:00:00Z", "2032-02-29T00:00:00Z"),
        ("0 0 0 13 * fri", "2030-01-01T00:00:00Z", "2030-01-04T00:00:00Z"),
        ("59 59 23 31 12 *", "2030-12-31T23:59:59Z", "2031-12-31T23:59:59Z"),
    ],
)
def test_next_times(pattern: str, after: str, expected: str) -> None:
    assert next_text(pattern, after) == expected


@pytest.mark.feature("3.033")
@pytest.mark.parametrize(
    ("pattern", "after", "zone", "expected"),
    [
        ("0 0 9 * * *", "2030-01-01T00:00:00Z", "Asia/Tokyo", "2030-01-02T09:00:00+09:00"),
        ("0 0 9 * * *", "2030-07-01T12:00:00Z", "Europe/Berlin", "2030-07-02T09:00:00+02:00"),
        # The clocks go forward on 31 March 2030: half past two is not there.
        ("0 30 2 * * *", "2030-03-30T12:00:00Z", "Europe/Berlin", "2030-04-01T02:30:00+02:00"),
    ],
)
def test_times_of_a_zone(pattern: str, after: str, zone: str, expected: str) -> None:
    assert next_text(pattern, after, zone) == expected


@pytest.mark.parametrize("pattern", [", * * * * *", "0 0 0 31 2 *", "* * * * * ,"])
def test_what_never_fires_is_refused_soon(pattern: str) -> None:
    with pytest.raises(cron.CronError):
        cron.next_time(pattern, UTC, ns("2030-01-01T00:00:00Z"))


@pytest.mark.feature("3.036")
def test_what_was_missed_fires_once() -> None:
    written, now = ns("2030-01-01T00:00:00Z"), ns("2030-01-01T10:00:30Z")
    assert schedule.parse("@hourly", None, written, now).text == "2030-01-01T11:00:00Z"
    assert schedule.parse("@every 1h", None, written, now).text == "2030-01-01T11:00:30Z"
    past = schedule.parse("@at 2030-01-01T01:00:00Z", None, written, now)
    assert past.at_ns == ns("2030-01-01T01:00:00Z")


@pytest.mark.feature("3.034")
def test_a_subject_has_one_schedule() -> None:
    schedules = Schedules(lambda seq: True)
    schedules.put("a", 1, 100)
    schedules.put("b", 2, 50)
    schedules.put("a", 3, 70)
    assert schedules.next_ns() == 50
    assert [(s, due.seq) for s, due in schedules.take_due(60, 9)] == [("b", 2)]
    assert [(s, due.seq) for s, due in schedules.take_due(200, 9)] == [("a", 3)]
    schedules.put("a", 4, 300)
    schedules.remove("a")
    assert schedules.next_ns() is None
    assert schedules.take_due(400, 9) == []


def test_replaced_and_removed_schedules_do_not_pile_up() -> None:
    alive = set(range(10))
    schedules = Schedules(lambda seq: seq in alive)
    for round_ in range(5_000):
        for seq in range(10):
            schedules.put(f"s.{seq}", seq, 10**12 + round_)
        # Its message goes without a word to the schedules, as by an age limit.
        schedules.put(f"gone.{round_}", 10 + round_, 10**12)
    assert len(schedules) < 200
    assert len(schedules.by_subject) < 200
    due = [subject for subject, _ in schedules.take_due(2 * 10**12, 1_000) if subject[0] == "s"]
    assert due == [f"s.{seq}" for seq in range(10)]


def test_what_was_taken_does_not_come_again_by_itself() -> None:
    schedules = Schedules(lambda seq: True)
    schedules.put("once", 1, 5)
    assert [subject for subject, _ in schedules.take_due(5, 9)] == ["once"]
    for seq in range(200):
        schedules.put("other", 2 + seq, 1_000 + seq)
    assert [subject for subject, _ in schedules.take_due(1_300, 9)] == ["other"]


def test_many_that_are_due_at_once_come_in_parts() -> None:
    schedules = Schedules(lambda seq: True)
    for seq in range(10):
        schedules.put(f"s.{seq}", seq, 5)
    assert len(schedules.take_due(5, 4)) == 4
    assert schedules.next_ns() == 5
    assert len(schedules.take_due(5, 9)) == 6
    assert schedules.next_ns() is None
