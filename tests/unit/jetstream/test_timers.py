"""Timers that ask to be woken: for the earliest, and not again for what was asked already."""

from __future__ import annotations

from server.jetstream.timers import WakingTimers


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
