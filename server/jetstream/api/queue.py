"""Requests wait here for their turn: two queues with a bound each, and a share of time for them.

Requests that only ask for information come behind all others. A queue that reaches its bound is
dropped whole, and the system account is told. With a loop, answering goes on for SLICE_NS at a time
and then lets the sockets be looked at, so that publishing does not wait for long listings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from server.clock import Clock
from server.core._turn import Turn

API_PHASE: Final = 3
SLICE_NS: Final = 20_000
ENTRIES_MAX: Final = 10_000

Work = Iterator[None]
"""Answers one request; each step is short."""


class RequestQueue:
    def __init__(self, turn: Turn, clock: Clock, finish: Callable[[], None]) -> None:
        """`finish` is called behind each slice of work."""
        self._turn = turn
        self._now_ns = clock.monotonic_ns
        self._finish = finish
        self._phase = turn.phase(API_PHASE, self._run)
        self._requests: deque[Work] = deque()
        self._questions: deque[Work] = deque()
        self._under_way: Work | None = None
        self._asked_again = False

    def __len__(self) -> int:
        return len(self._requests) + len(self._questions) + (self._under_way is not None)

    def close(self) -> None:
        """Nothing that waits is answered."""
        self._requests.clear()
        self._questions.clear()
        self._under_way = None
        self._turn.forget(self._phase)

    def push(self, work: Work, is_question: bool, entries_max: int) -> int:
        """How many were dropped, this one among them, because the queue was full."""
        queue = self._questions if is_question else self._requests
        queue.append(work)
        if len(queue) >= (entries_max or ENTRIES_MAX):
            dropped = len(queue)
            queue.clear()
            return dropped
        self._phase.mark()
        return 0

    def _next(self) -> Work | None:
        if self._requests:
            return self._requests.popleft()
        return self._questions.popleft() if self._questions else None

    def _run(self) -> None:
        end_ns = self._now_ns() + SLICE_NS
        try:
            while not self._turn.has_loop or self._now_ns() < end_ns:
                if self._under_way is None:
                    self._under_way = self._next()
                    if self._under_way is None:
                        return
                for _ in self._under_way:
                    if self._turn.has_loop and self._now_ns() >= end_ns:
                        break
                else:
                    self._under_way = None
        finally:
            self._finish()
            if len(self) and not self._asked_again:
                self._asked_again = True
                self._turn.later(self._again)

    def _again(self) -> None:
        self._asked_again = False
        self._phase.mark()
