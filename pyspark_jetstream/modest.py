"""Stays out of a server's way: processor, disk and page cache on the same machine."""

from __future__ import annotations

import ctypes
import io
import os
import platform
from contextlib import suppress
from pathlib import Path

NICENESS = 19
IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
IOPRIO_WHO_PROCESS, IOPRIO_IDLE = 1, 3 << 13
SYNC_FILE_RANGE_ALL = 7  # wait for what is under way, write, wait
BITE_BYTES = 32 << 10
LIBC = ctypes.CDLL(None, use_errno=True)


def be_modest() -> None:
    """Of this process and its children: processor and disk only when nobody else wants them."""
    os.nice(NICENESS)
    number = IOPRIO_SET.get(platform.machine())
    if number is not None and hasattr(os, "sched_setscheduler"):
        # Where the kernel refuses it or the disk knows no priorities, niceness has to do.
        LIBC.syscall(number, IOPRIO_WHO_PROCESS, 0, IOPRIO_IDLE)
    with suppress(ImportError):
        import pyarrow

        pyarrow.set_cpu_count(1)
        pyarrow.set_io_thread_count(1)


class SteadyFile(io.RawIOBase):
    """A file that goes to the disk a little at a time while it is written.

    Whoever syncs another file of the same file system, such as a server before it acks, may have
    to wait for what this one has left unwritten: never more than a bite. What was written is not
    kept in the page cache, where the server's own blocks are.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._written = self._settled = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: object) -> int:
        rest = memoryview(data).cast("B")  # type: ignore[arg-type]
        size = len(rest)
        while rest:
            self._written += (done := os.write(self._fd, rest[:BITE_BYTES]))
            rest = rest[done:]
            if self._written - self._settled >= BITE_BYTES:
                self._settle()
        return size

    def _settle(self) -> None:
        begin, size = self._settled, self._written - self._settled
        if hasattr(LIBC, "sync_file_range"):
            where = (ctypes.c_int64(begin), ctypes.c_int64(size))
            LIBC.sync_file_range(self._fd, *where, SYNC_FILE_RANGE_ALL)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, begin, size, os.POSIX_FADV_DONTNEED)
        self._settled = self._written

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()
