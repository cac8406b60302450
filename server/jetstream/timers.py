"""When something of a stream is due: ages, times to live, batches, schedules. One heap for all."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol


class Timed(Protocol):
    armed_ns: int | None

    def tick(self, now_ns: int) -> None:
        """Do what is due, then arm again."""


ENTRIES_LEAST = 64


class Timers:
    """Idle streams cost nothing: only what is armed is ever looked at.

    Arming for an earlier time leaves the entry of the later one behind. When there are twice as
    many entries as the last look left, they are looked through: each timed thing keeps one.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._numbers = count()
        self._entries_max = ENTRIES_LEAST

    def arm(self, timed: Timed, at_ns: int) -> None:
        """Call `timed` at `at_ns` or soon after; an earlier time that is armed stays."""
        if timed.armed_ns is not None and timed.armed_ns <= at_ns:
            return
        timed.armed_ns = at_ns
        heapq.heappush(self._heap, (at_ns, next(self._numbers), timed))
        if len(self._heap) > self._entries_max:
            self._leave_out_stale()

    def _leave_out_stale(self) -> None:
        armed = {timed: entry for entry in self._heap if (timed := entry[2]).armed_ns == entry[0]}
        self._heap = list(armed.values())
        heapq.heapify(self._heap)
        self._entries_max = max(2 * len(self._heap), ENTRIES_LEAST)

    def __len__(self) -> int:
        return len(self._heap)

    def run(self, now_ns: int) -> bool:
        """What is due has one tick. Whether something is due again already: its next slice."""
        due: list[tuple[int, Timed]] = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, _, timed = heapq.heappop(self._heap)
            due.append((at_ns, timed))
        failed: list[Exception] = []
        for at_ns, timed in due:
            # Others are left over from times that were armed anew.
            if timed.armed_ns == at_ns:
                timed.armed_ns = None
                try:
                    timed.tick(now_ns)
                except Exception as error:
                    failed.append(error)
        if failed:
            # The first is told when all the others had their time.
            raise failed[0]
        return bool(self._heap) and self._heap[0][0] <= now_ns


class WakingTimers(Timers):
    """Says when it wants to be run: `wake` is called with the earliest time there is."""

    def __init__(self) -> None:
        super().__init__()
        self.wake: Callable[[int], None] | None = None
        self._asked_ns: int | None = None

    def arm(self, timed: Timed, at_ns: int) -> None:
        super().arm(timed, at_ns)
        self._ask()

    def run(self, now_ns: int) -> bool:
        if self._asked_ns is not None and self._asked_ns <= now_ns:
            self._asked_ns = None
        try:
            return super().run(now_ns)
        finally:
            self._ask()

    def _ask(self) -> None:
        if self.wake is None or not self._heap:
            return
        earliest_ns = self._heap[0][0]
        if self._asked_ns is None or earliest_ns < self._asked_ns:
            self._asked_ns = earliest_ns
            self.wake(earliest_ns)
