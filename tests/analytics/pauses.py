"""What a test puts in the place of a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def instead_of_pauses(monkeypatch: pytest.MonkeyPatch, fake: Callable[[float], object]) -> None:
    """In this thread; those of a Spark session in the same process sleep as ever."""
    sleep, own = time.sleep, threading.current_thread()

    def pause(seconds: float) -> None:
        if threading.current_thread() is own:
            fake(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)
