"""Time and randomness as ports, and the real ones.

Below `server/app.py` nothing reads a clock or makes a random number by itself: it is handed these.
"""

from __future__ import annotations

import os
import random
import time
from typing import Protocol


class Clock(Protocol):
    """Where a room gets the time from."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that only grow; for intervals and deadlines."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; for stamps that people and files see."""
        ...


class Random(Protocol):
    """Where a room gets randomness from."""

    def token_bytes(self, size: int) -> bytes:
        """Unpredictable bytes: keys, nonces."""
        ...

    def below(self, bound: int) -> int:
        """A number in [0, bound): jitter and choices, nothing secret."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)


class SystemRandom:
    """The machine's randomness."""

    token_bytes = staticmethod(os.urandom)

    def below(self, bound: int) -> int:
        return random.randrange(bound)
