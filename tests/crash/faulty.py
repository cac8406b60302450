"""A file system that forgets: what was not synced may be gone, kept or garbled after a crash.

`FaultyFiles` does every call for real and remembers how to undo what is not on stable storage.
`crash(random)` then decides for each such write (in sectors), length and name, as a power cut does.
"""

import errno
import os
import random
import shutil
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage._fs import FilesPort

SECTOR = 512


class Stopped(OSError):
    """The machine has stopped: no call does anything any more."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, "stopped")


class FaultyFiles(FilesPort):
    """Stops at the `stop_at`-th sync, before its effect, or fails call `fail_at`.

    A write that fails with ENOSPC has written the half of it; from then on every write fails so.
    """

    def __init__(self, stop_at: int = 0, fail_at: int = 0, fail_errno: int = errno.EIO) -> None:
        self.stop_at, self.fail_at, self.fail_errno = stop_at, fail_at, fail_errno
        self.full = False
        self.failed_in = self.failed_on = ""
        self.syncs = self.calls_made = 0
        self.stopped = False
        self.paths: dict[int, str] = {}
        self.inodes: dict[int, int] = {}
        # inode -> undo steps, oldest first: (offset, bytes before) or (-1, size before)
        self.content: dict[int, list[tuple[int, bytes | int]]] = {}
        self.names: dict[str, list[Callable[[], None]]] = {}
        self.handles: dict[int, int] = {}

    def count(self) -> None:
        if self.stopped:
            raise Stopped
        self.calls_made += 1
        if self.calls_made == self.fail_at:
            caller = sys._getframe(1)
            if caller.f_code.co_name == "count_sync":
                caller = caller.f_back or caller
            self.failed_in = caller.f_code.co_name
            self.failed_on = self.path_in(caller.f_locals)
            raise OSError(self.fail_errno, os.strerror(self.fail_errno))

    def path_in(self, arguments: dict[str, Any]) -> str:
        """What a call is about, from its arguments."""
        if "fd" in arguments:
            return self.paths.get(arguments["fd"], "")
        return str(arguments.get("path") or arguments.get("source", ""))

    def count_sync(self) -> None:
        self.count()
        self.syncs += 1
        if self.syncs == self.stop_at:
            self.stopped = True
            raise Stopped

    def open(self, path: str, flags: int) -> int:
        self.count()
        fresh = not Path(path).exists()
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
        if fresh:
            self.undo_name(path, lambda: Path(path).unlink(missing_ok=True))
        self.paths[fd] = path
        inode = os.fstat(fd).st_ino
        self.inodes[fd] = inode
        if inode not in self.handles:
            self.handles[inode] = os.dup(fd)
        return fd

    def close(self, fd: int) -> None:
        self.count()
        del self.paths[fd]
        os.close(fd)

    def write(self, fd: int, data: bytes, at: int) -> None:
        if self.full or (self.calls_made + 1 == self.fail_at and self.fail_errno == errno.ENOSPC):
            self.fill_up(fd, data, at)
        self.count()
        before = os.pread(fd, len(data), at)
        size = os.fstat(fd).st_size
        steps = self.content.setdefault(self.inodes[fd], [])
        if at + len(data) > size:
            steps.append((-1, size))
        steps.append((at, before.ljust(len(data), b"\0")))
        os.pwrite(fd, data, at)

    def fill_up(self, fd: int, data: bytes, at: int) -> None:
        """The last room of the disk is for half of what is written first."""
        if not self.full:
            self.calls_made += 1
            os.pwrite(fd, data[: len(data) // 2], at)
            self.failed_on = self.paths[fd]
        self.full, self.failed_in = True, "write"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self, fd: int) -> None:
        self.count_sync()
        self.content.pop(self.inodes[fd], None)

    def allocate(self, fd: int, size: int) -> None:
        self.count()
        before = os.fstat(fd).st_size
        if size > before:
            self.content.setdefault(self.inodes[fd], []).append((-1, before))
            os.ftruncate(fd, size)

    def truncate(self, fd: int, size: int) -> None:
        self.count()
        before = os.fstat(fd).st_size
        steps = self.content.setdefault(self.inodes[fd], [])
        if size < before:
            steps.append((size, os.pread(fd, before - size, size)))
        steps.append((-1, before))
        os.ftruncate(fd, size)

    def undo_name(self, path: str, step: Callable[[], None]) -> None:
        self.names.setdefault(str(Path(path).parent), []).append(step)

    def rename(self, source: str, target: str) -> None:
        self.count()
        grave = self.bury(target)
        Path(source).rename(target)

        def undo() -> None:
            if Path(target).exists():
                Path(target).rename(source)
            self.unbury(grave, target)

        self.undo_name(target, undo)

    def exchange(self, source: str, target: str) -> None:
        if not Path(target).exists():
            self.rename(source, target)
            return
        self.count()
        self.swap(source, target)
        self.undo_name(target, lambda: self.swap(source, target))

    def swap(self, one: str, other: str) -> None:
        aside = f"{one}-aside"
        Path(one).rename(aside)
        Path(other).rename(one)
        Path(aside).rename(other)

    def bury(self, path: str) -> str | None:
        """Keep what a rename or an unlink would take, outside of the directory."""
        if not Path(path).exists():
            return None
        root = next(parent for parent in Path(path).parents if (parent / "directory").exists())
        grave = root.parent / f"grave-{uuid.uuid4().hex}"
        os.link(path, grave)
        return str(grave)

    def unlink(self, path: str) -> None:
        self.count()
        grave = self.bury(path)
        Path(path).unlink()
        if grave is not None:
            self.undo_name(path, lambda: self.unbury(grave, path))

    def unbury(self, grave: str | None, path: str) -> None:
        """Back to its name, if the directory that had it is there."""
        if grave is not None and Path(path).parent.exists():
            Path(grave).rename(path)

    def mkdir(self, path: str) -> None:
        self.count()
        Path(path).mkdir(mode=0o700)
        self.undo_name(path, lambda: shutil.rmtree(path, ignore_errors=True))

    def rmdir(self, path: str) -> None:
        self.count()
        Path(path).rmdir()
        self.undo_name(path, lambda: Path(path).mkdir(mode=0o700))

    def sync_all(self, path: str) -> None:
        self.count_sync()
        self.content.clear()
        self.names.clear()

    def sync_directory(self, path: str) -> None:
        self.count_sync()
        self.names.pop(path, None)

    def crash(self, rng: random.Random) -> None:
        """What is not on stable storage meets its fate. The store and its maps must be gone."""
        self.stopped = True
        for inode, steps in self.content.items():
            self.undo_content(self.handles[inode], steps, rng)
        for _, steps_of_names in sorted(self.names.items()):  # a directory before what it holds
            kept = rng.randint(0, len(steps_of_names))
            for step in reversed(steps_of_names[kept:]):
                step()
        self.release()

    def release(self) -> None:
        """The process is gone, and its descriptors with it."""
        self.stopped = True
        for handle in (*self.handles.values(), *self.paths):
            os.close(handle)
        self.handles.clear()
        self.paths.clear()

    def undo_content(
        self, handle: int, steps: list[tuple[int, bytes | int]], rng: random.Random
    ) -> None:
        """Newest first: each sector of each write is kept, dropped or garbled."""
        mood = rng.choice(("keep", "drop", "mixed", "mixed"))
        if mood == "keep":
            return
        for at, before in reversed(steps):
            if isinstance(before, int):
                if mood == "drop" or rng.random() < 0.5:
                    os.ftruncate(handle, before)
                continue
            for start in range(0, len(before), SECTOR):
                piece = before[start : start + SECTOR]
                fate = "drop" if mood == "drop" else rng.choice(("keep", "drop", "garble"))
                if fate == "garble":
                    piece = rng.randbytes(len(piece))
                if fate != "keep":
                    os.pwrite(handle, piece, at + start)
