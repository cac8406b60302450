"""Compresses and encrypts old blocks: one thread a directory, below the loop's priority."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

NICENESS = 10


def yield_to_others() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def run_now(run: Callable[[], None]) -> None:
    """For a directory without threads."""
    run()


class RewritePool:
    """One job at a time; `wake` is called in the pool's thread when it is done."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._executor = ThreadPoolExecutor(1, "martlet-rewrite", initializer=yield_to_others)
        self._job: Future[None] | None = None
        self._closed = False

    def begin(self, run: Callable[[], None]) -> None:
        self._job = self._executor.submit(run)
        self._job.add_done_callback(lambda job: self._wake())

    def discard(self, objects: list[object]) -> list[object]:
        """Let go of them in the pool's thread; an empty list for the next ones."""
        if self._closed:
            return []
        self._executor.submit(objects.clear)
        return []

    def wait(self) -> None:
        """Until the job under way, if any, is done. Not for the loop."""
        if self._job is not None:
            self._job.result()

    def close(self) -> None:
        self._closed = True
        self._executor.shutdown()
