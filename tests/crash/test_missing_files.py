"""Files that are gone: refused, or lost and told, never made anew."""

import errno
import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from storage._directory import DataDirectory
from storage.fs import NotUsable, StoreDown
from storage.keys import ServerKeys
from tests.crash.damage import KEY, content_of, memory_folder
from tests.crash.faulty import FaultyFiles

Message = tuple[int, int, bytes, bytes, bytes]
SMALL: dict[str, Any] = {
    "block_size_min": 1 << 10,
    "block_size_max": 1 << 10,
    "segment_size": 64 << 10,
    "files_open_max": 2,
}


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder / "data"


def message(seq: int) -> Message:
    return seq, seq, b"s", b"", b"%d " % seq * 30


def filled(path: Path, last: int, **options: Any) -> DataDirectory:
    directory = DataDirectory(path, **SMALL, **options)
    home = directory.create_stream({"name": "s"})
    home.append_many([message(seq) for seq in range(1, last + 1)])
    directory.wait(directory.commit())
    return directory


# -- the file `directory` --------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_without_the_directory_file_a_log_is_not_removed(path: Path, clean: bool) -> None:
    filled(path, 30).close(clean=clean)
    identity = (path / "directory").read_bytes()
    (path / "directory").unlink()
    before = content_of(path)
    if clean:
        (path / "log" / f"{7:016x}.kept").write_bytes(b"of a stream that could not be loaded")
    for _ in range(2):
        with pytest.raises(NotUsable, match="directory is missing: put it back from a copy"):
            DataDirectory(path, **SMALL)
        assert before.items() <= content_of(path).items()
    (path / "directory").write_bytes(identity)
    directory = DataDirectory(path, **SMALL)
    assert directory.homes[1].get_all() == [message(seq) for seq in range(1, 31)]
    directory.close()


def test_without_the_directory_file_and_a_log_streams_are_opened_and_it_is_told(path: Path) -> None:
    filled(path, 30).close()
    (path / "directory").unlink()
    directory = DataDirectory(path, **SMALL)
    assert directory.damage == [f"{path}/directory was missing, and a log: made anew"]
    assert directory.homes[1].get_all() == [message(seq) for seq in range(1, 31)]
    directory.close()


def test_encrypted_streams_need_the_directory_file(path: Path) -> None:
    filled(path, 3, keys=ServerKeys(KEY)).close()
    (path / "directory").unlink()
    with pytest.raises(NotUsable, match="no key opens the encrypted streams"):
        DataDirectory(path, keys=ServerKeys(KEY), **SMALL)
    assert not (path / "directory").exists()


# -- the block that is appended to -----------------------------------------------------------------


@pytest.mark.parametrize("threaded", [True, False])
@pytest.mark.parametrize("how", ["missing", "another"])
def test_the_block_that_is_appended_to_is_gone(path: Path, how: str, threaded: bool) -> None:
    """It stays gone: what comes next goes to a new block; no empty file passes for the old one."""
    filled(path, 3, threaded=threaded).close()
    (file,) = path.glob("streams/*/*.blk")
    file.unlink()
    if how == "another":
        filled(path.parent / "another", 3, threaded=threaded).close()
        (other,) = (path.parent / "another").glob("streams/*/*.blk")
        shutil.copy(other, file)
    directory = DataDirectory(path, threaded=threaded, **SMALL)
    home = directory.homes[1]
    home.check_all()
    home.checkpoint_wanted = True
    home.delete(2)
    directory.checkpoint_now(home, False)
    assert file.exists() == (how == "another")
    for seq in range(4, 60):
        home.append_many([message(seq)])
        directory.wait(directory.commit())
        home.checkpoint_wanted = seq % 7 == 0
    directory.wait_applied()
    wanted = [message(seq) for seq in range(4, 60)]
    assert (home.get_all(), home.lost) == (wanted, [[1, 3]])
    directory.close()
    directory = DataDirectory(path, threaded=threaded, **SMALL)
    home = directory.homes[1]
    home.check_all()
    assert (home.get_all(), home.lost) == (wanted, [[1, 3]])
    directory.close()


def test_a_block_that_goes_while_it_is_written_to_is_not_made_anew(path: Path) -> None:
    """Its records of before would be holes: the store stops, and a start has them from the log."""
    directory = filled(path, 3, threaded=False)
    other = directory.create_stream({"name": "other"})
    (file,) = path.glob("streams/*/*.blk")
    file.unlink()
    for seq in range(1, 40):  # takes the place of the open file
        other.append_many([message(seq)])
        directory.wait(directory.commit())
    directory.homes[1].append_many([message(4)])
    directory.commit()
    directory.poll()
    assert "No such file" in str(directory.failure)
    assert not file.exists()
    directory.close()
    directory = DataDirectory(path, threaded=False, **SMALL)
    assert directory.homes[1].get_all() == [message(seq) for seq in range(1, 5)]
    assert directory.homes[1].lost == []
    directory.close()


# -- the end of a directory whose disk failed ------------------------------------------------------


class SlowAndBroken(FaultyFiles):
    """From `began` on a write to a block takes its time, and the log's syncs fail."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.began = Event()
        self.writing = False
        self.closed_meanwhile = False

    def write(self, fd: int, data: bytes, at: int) -> None:
        if self.armed and self.paths[fd].endswith(".blk"):
            self.writing = True
            self.began.set()
            Event().wait(0.2)
            self.writing = False
        super().write(fd, data, at)

    def sync(self, fd: int) -> None:
        if self.began.is_set():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)

    def close(self, fd: int) -> None:
        self.closed_meanwhile = self.closed_meanwhile or self.writing
        super().close(fd)


def test_a_stop_that_fails_waits_for_the_block_thread(path: Path) -> None:
    files = SlowAndBroken()
    directory = filled(path, 3, files=files)
    home = directory.homes[1]
    directory.wait_applied()
    files.armed = True
    home.append_many([message(4)])
    directory.wait(directory.commit())
    directory.catch_up()
    assert files.began.wait(10)
    home.append_many([message(5)])
    with pytest.raises(StoreDown):
        directory.close()
    assert not files.closed_meanwhile
    assert files.paths == {}
    files.release()


class NoMoreBlocks(FaultyFiles):
    """Refuses to write to blocks."""

    armed = False

    def write(self, fd: int, data: bytes, at: int) -> None:
        if self.armed and self.paths[fd].endswith(".blk"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().write(fd, data, at)


def test_a_deletion_that_the_disk_refuses_leaves_no_file_in_the_list(path: Path) -> None:
    """The home goes when its last job does; its open file is closed before, not after."""
    files = NoMoreBlocks()
    directory = filled(path, 3, files=files, threaded=False)
    assert any(name.endswith(".blk") for name in files.paths.values())
    files.armed = True
    home = directory.homes[1]
    home.append_many([message(4)])
    directory.delete_stream(home, settle=False)
    directory.commit()
    directory.poll()
    assert directory.failure is not None
    del home
    gc.collect()
    assert not any(name.endswith(".blk") for name in files.paths.values())
    directory.close()
    assert files.paths == {}
    files.release()
