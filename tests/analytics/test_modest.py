"""What runs beside a server: last in every queue, and never much unwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_jetstream import modest

LOOK = """
import ctypes, os
from pyspark_jetstream import modest
modest.be_modest()
number = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
print(os.nice(0), ctypes.CDLL(None).syscall(number, 1, 0) if number else 3 << 13)
"""


def test_last_in_every_queue() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["19", str(3 << 13)], done.stderr


def test_a_file_is_settled_a_bite_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[int] = []
    settle = modest.SteadyFile._settle

    def told(file: modest.SteadyFile) -> None:
        settled.append(file.tell() - sum(settled))
        settle(file)

    monkeypatch.setattr(modest.SteadyFile, "_settle", told)
    content = bytes(range(256)) * 20_000
    with modest.SteadyFile(tmp_path / "file") as file:
        assert file.write(content) == len(content)
        file.write(memoryview(b"end"))
    assert (tmp_path / "file").read_bytes() == content + b"end"
    assert settled == [modest.BITE_BYTES] * (len(content) // modest.BITE_BYTES)
