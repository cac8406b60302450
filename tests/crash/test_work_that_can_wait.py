"""What fails without harm to what is stored takes nothing down: it waits, or is tried again."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles

SIZES: dict[str, Any] = {"block_size_min": 8 << 10, "block_size_max": 8 << 10, "threaded": False}
COUNT = 100


class NoRoomForNewFiles(FaultyFiles):
    """For those that would replace a block's."""

    armed = True

    def write(self, fd: int, data: bytes, at: int) -> None:
        if self.armed and self.paths[fd].endswith(".blk.new"):
            raise OSError(errno.ENOSPC, "no room")
        super().write(fd, data, at)


class FewDescriptors(FaultyFiles):
    """Every file is opened at the third try."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code
        self.tries = 0

    def open(self, path: str, flags: int) -> int:
        self.tries += 1
        if self.tries % 3:
            raise OSError(self.code, os.strerror(self.code))
        return super().open(path, flags)


def filled(directory: DataDirectory, codec: str = "none") -> None:
    home = directory.create_stream({"codec": codec})
    home.append_many([(seq, seq, b"a.b", b"", b"x" * 500) for seq in range(1, COUNT + 1)])
    directory.wait(directory.commit())
    directory.wait_applied()


def work(directory: DataDirectory) -> None:
    for _ in range(3):
        directory.maintain()
        directory.wait_rewritten()
        directory.wait(directory.commit())
        directory.wait_applied()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_block_is_rewritten_when_there_is_room_again(tmp_path: Path, codec: str) -> None:
    files = NoRoomForNewFiles()
    directory = DataDirectory(tmp_path, files, **SIZES, codec_of=lambda settings: settings["codec"])
    filled(directory, codec)
    home = directory.homes[1]
    for seq in range(2, 12):
        home.delete(seq)
    directory.wait(directory.commit())
    work(directory)
    assert directory.failure is None
    assert any("not rewritten yet, No space left on device" in what for what in home.damage)
    assert not list(tmp_path.glob("streams/*/*.new"))
    blocks = home.describe_blocks()
    assert (blocks[0]["dead"], blocks[0]["framed"]) == (10, False)
    files.armed = False
    home.checkpoint_wanted = True
    home.append_many([(COUNT + 1, 1, b"a.b", b"", b"x")])
    directory.wait(directory.commit())
    work(directory)
    blocks = home.describe_blocks()
    assert (blocks[0]["dead"], blocks[0]["framed"]) == (0, codec != "none")
    assert [entry[0] for entry in home.get_all()] == [1, *range(12, COUNT + 2)]
    directory.close()
    files.release()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_of_descriptors_is_waited_out(tmp_path: Path, code: int) -> None:
    files = FewDescriptors(code)
    directory = DataDirectory(tmp_path, files, **SIZES)
    filled(directory)
    directory.homes[1].delete(5, erase=True)
    directory.wait(directory.commit())
    directory.wait_applied()
    assert directory.failure is None
    directory.close()
    files.release()
    assert files.tries > 9
    directory = DataDirectory(tmp_path, **SIZES)
    assert len(directory.homes[1].get_all()) == COUNT - 1
    directory.close()


def test_a_folder_in_a_streams_folder_outlives_it(tmp_path: Path) -> None:
    """Its name is no stream's from then on, and a start removes it."""
    directory = DataDirectory(tmp_path, **SIZES)
    filled(directory)
    other = directory.create_stream({"codec": "none"})
    home = directory.homes[1]
    for number in range(70):
        (Path(home.path) / f"mine{number}").mkdir()
    directory.delete_stream(home)
    directory.wait_applied()
    assert directory.failure is None
    assert sorted(entry.name for entry in (tmp_path / "streams").iterdir()) == [
        f".{1:016x}",
        f"{other.group:016x}",
    ]
    assert not list(tmp_path.glob("streams/.*/*.blk"))
    directory.close()
    directory = DataDirectory(tmp_path, **SIZES)
    assert directory.damage == []
    assert list(directory.homes) == [other.group]
    assert not list(tmp_path.glob("streams/.*"))
    directory.close()


SHORT_FILE = """
import os, sys
from pathlib import Path
from storage._directory import DataDirectory
from storage._fs import zeroed_pages

path = Path(sys.argv[1])
directory = DataDirectory(path, block_size_min=64 << 10)
home = directory.create_stream({"name": "s"})
home.append_many([(seq, seq, b"a.b", b"", b"x" * 500) for seq in range(1, 101)])
directory.wait(directory.commit())
directory.wait_applied()
assert home.get(1) and home.get(100)
(block,) = path.glob("streams/*/*.blk")
os.truncate(block, 4096)
assert home.get(1) is not None
assert home.get(50) is None
assert home.lost == [[50, 50]], home.lost
assert zeroed_pages() > 0
print("still here", flush=True)
os._exit(0)
"""


def test_what_cannot_be_read_of_a_map_is_damage_and_not_the_end(tmp_path: Path) -> None:
    """A bad sector under a map is a SIGBUS, as is the end of a file that was cut short."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT_FILE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "still here\n"), done.stderr


def test_a_fault_elsewhere_ends_the_process_as_before(tmp_path: Path) -> None:
    lines = (
        "import ctypes, mmap, os, sys, storage._fs",
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)",
        "os.ftruncate(fd, 8192)",
        "view = mmap.mmap(fd, 8192)",
        "os.ftruncate(fd, 0)",
        "view[5000]",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), str(tmp_path / "f")], check=False
    )
    assert done.returncode == -7


class NoDescriptors:
    """For maps of blocks, `tries` times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tries = 0
        self.open = os.open
        monkeypatch.setattr(os, "open", self.try_to_open)

    def try_to_open(self, path: str, flags: int, *rest: int) -> int:
        if self.tries and str(path).endswith(".blk"):
            self.tries -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return self.open(path, flags, *rest)


def compressed(path: Path) -> DataDirectory:
    return DataDirectory(path, **SIZES, codec_of=lambda settings: settings["codec"])


def test_a_rewrite_waits_for_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shortage = NoDescriptors(monkeypatch)
    directory = compressed(tmp_path)
    filled(directory, "zstd")
    home = directory.homes[1]
    shortage.tries = 1000
    work(directory)
    assert directory.failure is None
    assert shortage.tries < 1000
    assert not any(block["framed"] for block in home.describe_blocks())
    shortage.tries = 0
    home.checkpoint_wanted = True
    home.append_many([(COUNT + 1, 1, b"a.b", b"", b"x")])
    work(directory)
    assert home.describe_blocks()[0]["framed"]
    assert len(home.get_all()) == COUNT + 1
    directory.close()


def test_an_erasure_needs_no_descriptor_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortage = NoDescriptors(monkeypatch)
    directory = compressed(tmp_path)
    filled(directory, "zstd")
    work(directory)
    home = directory.homes[1]
    assert home.describe_blocks()[0]["framed"]
    assert home.delete(3, erase=True)
    shortage.tries = 1
    work(directory)
    assert (directory.failure, shortage.tries) == (None, 0)
    assert [entry[0] for entry in home.get_all()] == [1, 2, *range(4, COUNT + 1)]
    directory.close()


def test_what_died_during_a_rewrite_is_dead_when_descriptors_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortage = NoDescriptors(monkeypatch)
    directory = compressed(tmp_path)
    filled(directory)
    home = directory.homes[1]
    for seq in range(1, 12):
        home.delete(seq)
    home.checkpoint_wanted = True
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.maintain()
    home.delete(12)
    shortage.tries = 3
    directory.wait(directory.commit())
    directory.wait_applied()
    assert (directory.failure, shortage.tries) == (None, 0)
    first = home.describe_blocks()[0]
    assert (first["generation"], first["dead"]) == (1, 1)
    assert [entry[0] for entry in home.get_all()] == list(range(13, COUNT + 1))
    directory.close()


def test_a_failed_rewrite_of_a_removed_block_is_no_failure(tmp_path: Path) -> None:
    """Also with an erasure behind it: the file goes with what it has."""
    files = NoRoomForNewFiles()
    directory = DataDirectory(tmp_path, files, **SIZES, codec_of=lambda settings: settings["codec"])
    filled(directory, "zstd")
    home = directory.homes[1]
    last = home.describe_blocks()[0]["last"]
    directory.maintain()
    directory.wait(directory.commit())
    directory.wait_applied()
    for seq in range(1, last + 1):
        assert home.delete(seq, erase=seq == 1)
    directory.wait(directory.commit())
    directory.wait_applied()
    assert directory.failure is None
    assert [entry[0] for entry in home.get_all()] == list(range(last + 1, COUNT + 1))
    directory.close()
    files.release()


NO_DESCRIPTORS = """
import os, resource, sys, threading
from storage._directory import DataDirectory

directory = DataDirectory(sys.argv[1])
home = directory.create_stream({"name": "s"})
home.append_many([(seq, seq, b"a.b", b"", b"x" * 500) for seq in range(1, 101)])
directory.wait(directory.commit())
directory.wait_applied()
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # those that are open stay so
again = threading.Timer(0.2, resource.setrlimit, (resource.RLIMIT_NOFILE, limits))
again.start()
directory.delete_stream(home)
directory.wait_applied()
assert not again.is_alive(), "it needed no descriptor"
assert directory.failure is None, directory.failure
assert os.listdir(f"{sys.argv[1]}/streams") == []
directory.close()
"""


def test_a_deleted_streams_folder_waits_for_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTORS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
