"""Whether the machine, or the control group this process is in, is short of memory.

The kernel counts for how long somebody had to wait for memory (pressure stall information). Where
it does not, nothing is given back early: caches are bounded and small anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

STALLED_SHARE_MIN: Final = 0.1
"""Of the time since the last look, in which some task waited for memory."""


class MemoryPressure:
    """Asked now and then; `path` is a file as /proc/pressure/memory, None: there is none."""

    def __init__(self, path: Path | None, now_ns: int) -> None:
        self._path = path
        self._asked_ns = now_ns
        self._stalled_ns = self._read_stalled_ns()

    def relieve(self, now_ns: int, drop_caches: Callable[[], None]) -> None:
        """Has caches dropped when memory was short since the last call."""
        passed_ns, stalled_ns = now_ns - self._asked_ns, self._read_stalled_ns()
        waited_ns = stalled_ns - self._stalled_ns
        self._asked_ns, self._stalled_ns = now_ns, stalled_ns
        if waited_ns > STALLED_SHARE_MIN * passed_ns:
            drop_caches()

    def _read_stalled_ns(self) -> int:
        if self._path is None:
            return 0
        try:
            some = self._path.read_bytes().partition(b"\n")[0]
            return int(some.rpartition(b"total=")[2]) * 1000
        except (OSError, ValueError):
            self._path = None  # a kernel that was told not to count answers with an error
            return 0


def pressure_file(root: Path = Path("/")) -> Path | None:
    """Of this process's control group, else of the machine."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        groups = []
    own = [line[3:].lstrip("/") for line in groups if line.startswith("0::")]
    candidates = [root / "sys/fs/cgroup" / path / "memory.pressure" for path in own]
    candidates.append(root / "proc/pressure/memory")
    return next((path for path in candidates if path.exists()), None)
