"""Lame duck mode: no new clients, a word to the present ones, then they are closed one by one.

The pauses keep thousands of clients from reconnecting elsewhere in the same moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from server.clock import Random
from server.core._client import Client

SECOND_NS = 1_000_000_000
PAUSE_MAX_NS = SECOND_NS


class Loop(Protocol):
    def call_later(self, delay: float, callback: Callable[[], None]) -> object: ...


class Pace:
    """How the closing of `count` clients is spread over `span_ns`."""

    def __init__(self, span_ns: int, count: int) -> None:
        span_ns = span_ns if span_ns > 0 else SECOND_NS
        interval_ns = span_ns // count
        # More clients than nanoseconds cannot be; the batch is for spans that tests make tiny.
        self.batch = max(1, count // span_ns) if interval_ns < 1 else 1
        self.interval_ns = min(max(interval_ns, 1), PAUSE_MAX_NS)

    def pause_s(self, random: Random) -> float:
        """Random, and at least half an interval."""
        return max(random.below(self.interval_ns), self.interval_ns // 2) / SECOND_NS


class LameDuck:
    """Closes `clients`, all of them after `grace_ns`, then calls `done`."""

    def __init__(
        self,
        loop: Loop,
        random: Random,
        clients: list[Client],
        *,
        duration_ns: int,
        grace_ns: int,
        announce: Callable[[str], None],
        done: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._random = random
        self._clients = clients[::-1]
        self._pace = Pace(duration_ns - grace_ns, len(clients))
        self._announce = announce
        self._done = done
        loop.call_later(grace_ns / SECOND_NS, self._begin)

    def _begin(self) -> None:
        self._announce("Closing existing clients")
        self._close_next()

    def _close_next(self) -> None:
        for _ in range(self._pace.batch):
            if self._clients:
                self._clients.pop().close("Server Shutdown")
        if self._clients:
            self._loop.call_later(self._pace.pause_s(self._random), self._close_next)
        else:
            self._done()
