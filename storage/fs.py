"""Small files by name: for the control plane, where a few system calls more do not matter.

The data path's calls are in `_fs`, behind a port.
"""

import fcntl
import os
import re
import resource
from pathlib import Path


class NotUsable(Exception):
    """This directory cannot be opened: in use, of a newer version, or not ours."""


class StoreDown(OSError):
    """The disk failed earlier; nothing can be written until a restart."""


def open_files_allowed() -> int:
    """How many blocks' files may be open: most of a process's descriptors are for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(max(soft // 8, 64), 8192) if soft > 0 else 8192


def syncfs_tells_errors(release: str) -> bool:
    """Whether a kernel of this release says when something could not be written (since 5.8)."""
    numbers = [int(part) for part in re.findall(r"\d+", release)[:2]]
    return numbers >= [5, 8]


def make_directory(path: Path) -> None:
    """With what is missing above it; the names last."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in missing:
        sync_directory(place.parent)


def write_file(path: Path, content: bytes) -> None:
    """A small file, whole or not at all, on stable storage with its name."""
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    sync_directory(path.parent)


def read_if_there(path: str | Path) -> bytes:
    """Empty when there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return read_whole(fd)
    finally:
        os.close(fd)


def read_whole(fd: int) -> bytes:
    """From the start; a start reads thousands of small files, so without Python's file objects."""
    content = os.pread(fd, os.fstat(fd).st_size, 0)
    while more := os.pread(fd, 1 << 20, len(content)):
        content += more
    return content


def names_in(directory: str) -> list[str] | None:
    """None when there is no such directory."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries]
    except FileNotFoundError:
        return None


def begin_file(path: str | Path, content: bytes) -> None:
    """A small file that does not last yet."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)


def sync_directory(path: Path) -> None:
    """Make the names in `path` last."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def take_lock(path: Path) -> int:
    """The descriptor that holds `path/lock`; NotUsable while another process has it."""
    try:
        fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NotUsable(f"{path} cannot be written to: {error.strerror}") from None
    hold_lock(fd, path)
    return fd


def take_lock_to_read(path: Path) -> int | None:
    """The same without writing; None: nobody ever had it."""
    try:
        fd = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    hold_lock(fd, path)
    return fd


def hold_lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise NotUsable(f"{path} is in use by another process") from None
