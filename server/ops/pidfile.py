"""The pid file and the ports file: how other programs find this process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

PID_FILE_MODE = 0o640


def write_pid_file(path: str) -> None:
    """The decimal pid, without a newline. It stays there after the end, as with the reference."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PID_FILE_MODE)
    with open(fd, "w") as file:
        file.write(str(os.getpid()))


def ports_file_path(folder: str, program: str) -> str:
    return f"{folder.rstrip('/') or '/'}/{program}_{os.getpid()}.ports"


def write_ports_file(path: str, urls: Mapping[str, Sequence[str]]) -> None:
    """A JSON object of arrays of URLs; it appears whole, so that a reader never sees a part."""
    found = {kind: some for kind, some in urls.items() if some}
    unfinished = Path(f"{path}.new")
    unfinished.write_text(json.dumps(found, separators=(",", ":")))
    unfinished.replace(path)
