"""When blocks that are full come to stable storage, and how much may wait for its block."""

import time
from pathlib import Path

from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles

BLOCKS = {"block_size_min": 4096, "block_size_max": 4096}
SEALED_MAX = 32


class WatchedFiles(FaultyFiles):
    """Keeps the names of what was synced, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[str] = []

    def sync(self, fd: int) -> None:
        self.synced.append(Path(self.paths[fd]).name)
        super().sync(fd)

    def synced_blocks(self) -> list[str]:
        return [name for name in self.synced if name.endswith(".blk")]

    def open_blocks(self) -> int:
        return sum(path.endswith(".blk") for path in self.paths.values())


def fill_blocks(directory: DataDirectory, home: BlockHome, count: int) -> None:
    """So many blocks are full, and the next has begun."""
    while len(home.describe_blocks()) <= count:
        home.append_many([(home.last_seq + 1, 1, b"s", b"", b"m" * 1000)])
        directory.wait(directory.commit())


def test_a_full_block_is_synced_with_the_checkpoint(tmp_path: Path) -> None:
    files = WatchedFiles()
    directory = DataDirectory(tmp_path / "data", files, threaded=False, **BLOCKS)
    home = directory.create_stream({"name": "s"})
    fill_blocks(directory, home, 3)
    assert files.synced_blocks() == []
    directory.close()
    names = [f"{number:016x}.blk" for number in (1, 2, 3, 4)]
    assert files.synced_blocks() == names
    before_the_state = files.synced[: files.synced.index("state.a.new")]
    assert [name for name in before_the_state if name.endswith(".blk")] == names
    assert files.paths == {}
    files.release()


def test_not_many_full_blocks_wait(tmp_path: Path) -> None:
    files = WatchedFiles()
    directory = DataDirectory(tmp_path / "data", files, threaded=False, **BLOCKS)
    home = directory.create_stream({"name": "s"})
    fill_blocks(directory, home, SEALED_MAX)
    assert files.synced_blocks() == []
    fill_blocks(directory, home, SEALED_MAX + 2)
    assert files.synced_blocks() == [f"{number:016x}.blk" for number in (1, 2)]
    assert files.open_blocks() == SEALED_MAX + 1
    directory.close(clean=False)
    assert files.paths == {}
    files.release()


def test_what_is_removed_is_not_synced(tmp_path: Path) -> None:
    files = WatchedFiles()
    directory = DataDirectory(tmp_path / "data", files, threaded=False, **BLOCKS)
    home = directory.create_stream({"name": "s"})
    other = directory.create_stream({"name": "other"})
    fill_blocks(directory, home, 3)
    fill_blocks(directory, other, 1)
    home.drop(home.describe_blocks()[1]["first"])
    directory.wait(directory.commit())
    assert files.open_blocks() == 5
    directory.delete_stream(home)
    directory.wait_applied()
    assert files.open_blocks() == 2
    assert files.synced_blocks() == []
    directory.close()
    assert len(files.synced_blocks()) == 2
    files.release()


def test_what_has_not_reached_its_block_has_a_bound(tmp_path: Path) -> None:
    class SlowBlocks(FaultyFiles):
        def write(self, fd: int, data: bytes, at: int) -> None:
            if self.paths[fd].endswith(".blk"):
                time.sleep(0.001)
            super().write(fd, data, at)

    files = SlowBlocks()
    directory = DataDirectory(tmp_path / "data", files, backlog_bytes_max=64 << 10)
    home = directory.create_stream({"name": "s"})
    most = 0
    for seq in range(1, 401):
        home.append_many([(seq, seq, b"s", b"", b"m" * 10_000)])
        directory.commit()
        most = max(most, directory.stats["unapplied_bytes"])
    assert 64 << 10 < most <= (128 << 10) + 11_000
    assert home.get(400) is not None
    directory.close()
    files.release()
