"""A disk that refuses: EIO at every call in turn, no more room in the middle of every write."""

import errno
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

import storage.keys
from storage._codec import checksum
from storage._directory import DataDirectory
from storage.fs import StoreDown
from tests.crash.damage import memory_folder
from tests.crash.faulty import FaultyFiles
from tests.crash.test_power_loss import check, quick_key
from tests.crash.workload import TINY, VARIANTS, StreamModel, run

STEP = int(os.environ.get("MARTLET_ERROR_STEP", "5"))
OPERATIONS = 40
SEED = 12


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_error_at_every_call(monkeypatch: pytest.MonkeyPatch, variant: str, code: int) -> None:
    """The store says that it is down, and a start finds all that was acked before."""
    monkeypatch.setattr(storage.keys, "master_key", quick_key)
    fail_at, whole = 1, False
    with memory_folder() as folder:
        while not whole:
            where = f"{variant}, {errno.errorcode[code]} at call {fail_at}"
            files = FaultyFiles(fail_at=fail_at, fail_errno=code)
            models: dict[int, StreamModel] = {}
            path = folder / str(fail_at) / "data"
            with patch("os.urandom", random.Random(SEED).randbytes):
                done = run(path, files, SEED, OPERATIONS, models, variant=variant)
            whole = files.calls_made < fail_at and not files.full
            # A close that fails takes nothing away: what was written is synced by then.
            # Nor does a new file for a block that has one.
            assert files.failed_on.endswith(".blk.new") or (
                done == (whole or files.failed_in == "close")
            ), f"{where}: {files.failed_in}"
            files.release()
            check(path, models, where, variant=variant)
            fail_at += STEP
    assert fail_at > 150


@pytest.mark.parametrize("call", ["sync", "write"])
def test_nothing_is_acked_behind_a_failure(tmp_path: Path, call: str) -> None:
    """A sync that worked afterwards would mean nothing: the kernel may have let the pages go."""

    class FailsOnce(FaultyFiles):
        armed = False

        def count(self) -> None:
            super().count()
            caller = sys._getframe(1).f_code.co_name
            if self.armed and caller in (call, f"count_{call}"):
                self.armed = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    files = FailsOnce()
    directory = DataDirectory(tmp_path / "data", files, threaded=False, **TINY)
    home = directory.create_stream({"name": "s"})
    home.append_many([(1, 1, b"s", b"", b"acked")])
    directory.wait(directory.commit())
    files.armed = True
    home.append_many([(2, 2, b"s", b"", b"never acked")])
    ticket = directory.commit()
    for _ in range(3):
        assert directory.poll() < ticket
    assert home.durable_seq == 1
    assert directory.failure is not None
    assert directory.failure.startswith(f"{tmp_path}/data is down: [Errno 5] Input/output error")
    with pytest.raises(StoreDown, match="is down"):
        directory.commit()
    with pytest.raises(StoreDown, match="is down"):
        directory.wait(ticket)
    assert home.get(1) == (1, 1, b"s", b"", b"acked"), "reading goes on"
    directory.close()
    files.release()
    again = DataDirectory(tmp_path / "data", threaded=False, **TINY)
    assert again.homes[1].get(1) == (1, 1, b"s", b"", b"acked")
    again.close()


FILLER = """
import resource, sys
from storage._directory import DataDirectory, StoreDown
directory = DataDirectory(sys.argv[1], segment_size=1 << 20,
                          block_size_min=64 << 10, block_size_max=64 << 10)
home = directory.create_stream({"name": "s"})
home.append_many([(1, 1, b"s", b"", b"x")])
directory.wait(directory.commit())
resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, 100 << 10))
acked = 1
try:
    while True:
        home.append_many([(home.last_seq + 1, 1, b"s", b"", b"x" * 3000)])
        directory.wait(directory.commit())
        acked = home.durable_seq
except StoreDown as error:
    print(acked, "File too large" in str(error), home.durable_seq == acked)
"""


def test_a_write_that_the_kernel_cuts_short(tmp_path: Path) -> None:
    """The limit of a file's size in the middle of a record: a short write, then an error."""
    done = subprocess.run(
        [sys.executable, "-c", FILLER, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    acked, told, unmoved = done.stdout.split()
    assert (int(acked) > 25, told, unmoved) == (True, "True", "True"), done.stderr
    directory = DataDirectory(tmp_path / "data")
    found = [message[0] for message in directory.homes[1].get_all()]
    assert found[: int(acked)] == list(range(1, int(acked) + 1))
    assert len(found) <= int(acked) + 1
    assert directory.homes[1].lost == []
    directory.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Where everybody may go, as not everybody may into pytest's own folders."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


OPENER = """
import os, sys
from storage._directory import DataDirectory
from storage.fs import NotUsable
if os.geteuid() == 0:
    os.setuid(65534)
try:
    DataDirectory(sys.argv[1])
except NotUsable as error:
    print(error)
"""


def refusal(path: Path) -> str:
    """What another process without special rights is told."""
    done = subprocess.run(
        [sys.executable, "-c", OPENER, str(path)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout, done.stderr
    return done.stdout.strip()


def test_refusals_tell_what_to_do(open_folder: Path) -> None:
    path = open_folder / "data"
    directory = DataDirectory(path)
    for part in (path, path / "log", path / "streams"):
        part.chmod(0o755)
    (path / "lock").chmod(0o666)
    assert refusal(path) == f"{path} is in use by another process"
    directory.close()
    (path / "lock").chmod(0o444)
    path.chmod(0o555)
    assert refusal(path) == f"{path} cannot be written to: Permission denied"
    path.chmod(0o755)
    (path / "lock").chmod(0o666)
    identity = bytearray((path / "directory").read_bytes())
    identity[8] = 77
    identity[56:] = checksum(bytes(identity[:56])).to_bytes(8, "little")
    (path / "directory").write_bytes(identity)
    (path / "directory").chmod(0o644)
    assert "format version 77; this Martlet knows up to 2" in refusal(path)
