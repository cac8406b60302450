"""Timers that ask to be woken: for the earliest, and not again for what was asked already."""

from __future__ import annotations

from server.jetstream.timers import Timers, WakingTimers


class Due:
    def __init__(self) -> None:
        self.armed_ns: int | None = None
        self.ticks: list[int] = []

    def tick(self, now_ns: int) -> None:
        self.ticks.append(now_ns)


def test_asked_once_for_each_time() -> None:
    timers, asked = WakingTimers(), list[int]()
    timers.wake = asked.append
    late, early = Due(), Due()
    timers.arm(late, 500)
    timers.arm(early, 200)
    timers.arm(late, 900)
    for now_ns in (10, 20, 30):
        timers.run(now_ns)
    assert asked == [500, 200]
    timers.run(200)
    assert (early.ticks, late.ticks) == ([200], [])
    assert asked == [500, 200, 500]
    timers.run(600)
    assert late.ticks == [600]
    assert asked == [500, 200, 500]


def test_times_that_were_armed_anew_do_not_pile_up() -> None:
    timers, due = Timers(), [Due() for _ in range(10)]
    for now_ns in range(5_000):
        for each in due:
            timers.arm(each, 1_000_000)
            timers.arm(each, now_ns + 1)
        timers.run(now_ns + 1)
        assert len(timers) <= 64
    assert [len(each.ticks) for each in due] == [5_000] * 10
    for each in due:
        timers.arm(each, 1_000_000)
    timers.run(1_000_000)
    assert [len(each.ticks) for each in due] == [5_001] * 10


class Slice(Due):
    """Has `left` slices of work, all of them due at once."""

    def __init__(self, timers: Timers, left: int) -> None:
        super().__init__()
        self._timers = timers
        self._left = left

    def tick(self, now_ns: int) -> None:
        super().tick(now_ns)
        self._left -= 1
        if self._left:
            self._timers.arm(self, now_ns - 1)


def test_a_run_does_one_slice_and_says_that_there_are_more() -> None:
    timers = Timers()
    work = Slice(timers, 3)
    timers.arm(work, 5)
    assert not timers.run(4)
    assert [timers.run(6), timers.run(6), timers.run(6)] == [True, True, False]
    assert len(work.ticks) == 3
