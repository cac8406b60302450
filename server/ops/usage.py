"""This process's memory and CPU, read from /proc."""

from __future__ import annotations

import os
import time

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# A percentage over a shorter time than this is noise; the last one is told again.
SAMPLE_NS = 1_000_000_000


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


class CpuMeter:
    """Percent of one core (100 = a full one) since the last sample."""

    def __init__(self) -> None:
        self._at_ns = time.monotonic_ns()
        self._used_ns = time.process_time_ns()
        self._percent = 0.0

    def percent(self) -> float:
        now_ns, used_ns = time.monotonic_ns(), time.process_time_ns()
        if now_ns - self._at_ns >= SAMPLE_NS:
            self._percent = round(100 * (used_ns - self._used_ns) / (now_ns - self._at_ns), 1)
            self._at_ns, self._used_ns = now_ns, used_ns
        return self._percent
