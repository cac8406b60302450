"""Password checks: constant time for plain ones, a few threads beside the loop for bcrypt.

A bcrypt check takes tens to hundreds of milliseconds of one core. Checks wait in a bounded line for
one of the workers, so that a storm of logins delays logins and nothing else.
"""

from __future__ import annotations

import hmac
import os
import re
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

BCRYPT = re.compile(r"\$2[abxy]\$\d{2}\$[A-Za-z0-9./]{53}")


def is_bcrypt(password: str) -> bool:
    return BCRYPT.fullmatch(password) is not None


def plain_equal(configured: str, given: str) -> bool:
    return hmac.compare_digest(configured.encode(), given.encode())


def bcrypt_equal(hashed: str, given: str) -> bool:
    """Slow on purpose. Only the first 72 bytes count, as everywhere with bcrypt."""
    import bcrypt

    # `$2x$` and `$2y$` name the same computation as `$2b$`.
    normal = b"$2b$" + hashed.encode()[4:]
    try:
        return bool(bcrypt.checkpw(given.encode()[:72], normal))
    except ValueError:
        return False


class Loop(Protocol):
    """What the pool needs of the event loop."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object: ...


Answer = Callable[[bool], None]
WORKER_NICENESS = 10
# Beyond it a login is refused as a timeout would.
CHECKS_WAITING_MAX = 1024


def give_way() -> None:
    """Lets the loop's thread go before this one when both want the same core."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), WORKER_NICENESS)


class PasswordPool:
    """At most `workers` bcrypt checks at a time, at most `waiting_max` more waiting.

    `check` answers through `answer` on the loop, later; it returns False when the line is full, and
    then `answer` is never called. `wanted` is asked before the work starts: a client that is gone
    costs nothing.
    """

    def __init__(self, loop: Loop, waiting_max: int, workers: int = 0) -> None:
        self._loop = loop
        self._waiting_max = waiting_max
        # One core stays with the loop.
        self._workers_max = workers or max(1, min(4, (os.cpu_count() or 2) - 1))
        self._waiting: deque[tuple[str, str, Callable[[], bool], Answer]] = deque()
        self._running = 0
        self._executor: ThreadPoolExecutor | None = None

    def check(self, hashed: str, given: str, wanted: Callable[[], bool], answer: Answer) -> bool:
        if len(self._waiting) >= self._waiting_max:
            return False
        self._waiting.append((hashed, given, wanted, answer))
        self._start_next()
        return True

    def _start_next(self) -> None:
        while self._waiting and self._running < self._workers_max:
            hashed, given, wanted, answer = self._waiting.popleft()
            if not wanted():
                continue
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    self._workers_max, "password", initializer=give_way
                )
            self._running += 1
            future = self._executor.submit(bcrypt_equal, hashed, given)
            future.add_done_callback(partial(self._tell_loop, answer))

    def _tell_loop(self, answer: Answer, done: Future[bool]) -> None:
        """On the worker's thread."""
        self._loop.call_soon_threadsafe(self._finish, done, answer)

    def _finish(self, done: Future[bool], answer: Answer) -> None:
        self._running -= 1
        self._start_next()
        answer(done.result())

    def close(self) -> None:
        """Drops the line; a check under way ends by itself."""
        self._waiting.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
