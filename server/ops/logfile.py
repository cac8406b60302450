"""A log file: appended to, rotated at a size, with a bounded number of old ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from time import localtime, strftime

from server.clock import Clock
from server.ops.logging import Level, write_to_stderr

LOG_FILE_MODE = 0o640
ROTATED_STAMP = re.compile(r"\d{4}(\.\d{2}){5}\.\d{1,9}")

FormatLine = Callable[[Level, str], bytes]


class FileSink:
    """Appends to `path`. With `size_limit`, a file that grew beyond it is renamed to
    `<path>.YYYY.MM.DD.hh.mm.ss.nnnnnnnnn`; with `files_max`, that many files are kept in all.
    `format_line` makes the lines that the rotation itself writes.
    """

    def __init__(
        self, path: str, clock: Clock, format_line: FormatLine, *, size_limit: int, files_max: int
    ) -> None:
        self._path = Path(path)
        self._clock = clock
        self._format_line = format_line
        self._size_limit = size_limit
        self._rotate_at = size_limit
        self._files_max = files_max
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, LOG_FILE_MODE)
        self._size = os.fstat(self._fd).st_size

    def write(self, level: Level, line: bytes) -> None:
        self._append(line)
        if self._rotate_at and self._size > self._rotate_at:
            self._rotate()

    def _append(self, line: bytes) -> None:
        try:
            self._size += os.write(self._fd, line)
        except OSError:
            write_to_stderr(line)

    def _rotate(self) -> None:
        backup = self._path.with_name(f"{self._path.name}.{self._stamp()}")
        old_fd = self._fd
        try:
            self._path.rename(backup)
            self._open()
        except OSError as error:
            self._rotate_at *= 2
            self._note(
                Level.ERROR,
                f"Unable to rotate logfile ({error}), will attempt next rotation at size "
                f"{self._rotate_at}",
            )
            return
        os.close(old_fd)
        self._rotate_at = self._size_limit
        self._note(Level.INFO, f'Rotated log, backup saved as "{backup}"')
        if self._files_max > 0:
            self._purge()

    def _stamp(self) -> str:
        second, rest_ns = divmod(self._clock.wall_ns(), 1_000_000_000)
        return strftime("%Y.%m.%d.%H.%M.%S", localtime(second)) + f".{rest_ns:09d}"

    def _purge(self) -> None:
        prefix = f"{self._path.name}."
        try:
            backups = sorted(
                entry
                for entry in self._path.parent.iterdir()
                if entry.name.startswith(prefix)
                and ROTATED_STAMP.fullmatch(entry.name.removeprefix(prefix))
            )
            surplus = len(backups) - (self._files_max - 1)
            for backup in backups[: max(surplus, 0)]:
                backup.unlink()
                self._note(Level.INFO, f'Purged log file "{backup.name}"')
        except OSError as error:
            self._note(
                Level.ERROR,
                f"Unable to purge old log files ({error}), will attempt next rotation",
            )

    def _note(self, level: Level, text: str) -> None:
        self._append(self._format_line(level, text))

    def close(self) -> None:
        os.close(self._fd)
