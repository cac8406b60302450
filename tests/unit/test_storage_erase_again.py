"""A start finishes the erasures that the log tells of, with few syncs."""

from pathlib import Path
from typing import Any

import pytest

from storage._directory import DataDirectory
from storage.filestore import FileStores
from tests.crash.faulty import FaultyFiles
from tests.unit.test_storage_erase import holders

COUNT = 200
ERASED = range(5, 165)


class CountingFiles(FaultyFiles):
    """How often blocks were synced, and what was written to them."""

    def __init__(self) -> None:
        super().__init__()
        self.block_syncs = self.block_writes = 0

    def sync(self, fd: int) -> None:
        self.block_syncs += ".blk" in self.paths[fd]
        super().sync(fd)

    def write(self, fd: int, data: bytes, at: int) -> None:
        self.block_writes += ".blk" in self.paths[fd]
        super().write(fd, data, at)


def secret(seq: int) -> bytes:
    return b"<secret %06d>" % seq


def filled(path: Path, **options: Any) -> DataDirectory:
    directory = DataDirectory(
        path, threaded=False, block_size_min=8 << 10, block_size_max=16 << 10, **options
    )
    home = directory.create_stream({"name": "s"})
    for seq in range(1, COUNT + 1):
        home.append_many([(seq, seq, b"a.b", b"", secret(seq) * 20)])
    directory.wait(directory.commit())
    directory.wait_rewritten()
    directory.checkpoint_now(home, False)
    return directory


def erase(directory: DataDirectory) -> None:
    for seq in ERASED:
        assert directory.homes[1].delete(seq, erase=True)
    directory.wait(directory.commit())
    directory.wait_applied()


@pytest.mark.feature("4.005")
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_block_is_synced_once_for_all_its_erasures(
    tmp_path: Path, codec: str, finished: bool
) -> None:
    options: dict[str, Any] = {"codec_of": lambda settings: codec}
    directory = filled(tmp_path, **options)
    kept = {block: block.read_bytes() for block in tmp_path.glob("streams/*/*.blk")}
    erase(directory)
    directory.close(clean=False)
    if not finished:
        for block, content in kept.items():
            block.write_bytes(content)
    files = CountingFiles()
    directory = DataDirectory(tmp_path, files, threaded=False, **options)
    try:
        home = directory.homes[1]
        assert [entry[0] for entry in home.get_all()] == [
            seq for seq in range(1, COUNT + 1) if seq not in ERASED
        ]
        assert (home.lost, home.damage, directory.damage) == ([], [], [])
        assert files.block_syncs <= 3 * len(kept)
        assert files.block_writes <= (6 * len(kept) + 2 * len(ERASED)) * (not finished)
        assert all(holders(tmp_path, secret(seq)) == [] for seq in (5, 90, 164))
    finally:
        directory.close(clean=False)
        files.release()


def test_the_logic_counts_what_is_left(tmp_path: Path) -> None:
    """Also when the records were overwritten before the crash, so that their subjects are gone."""
    stores = FileStores(tmp_path, threaded=False)
    store = stores.create({"name": "s"})
    for seq in range(1, COUNT + 1):
        store.store(f"a.{seq % 7}", b"", secret(seq), seq)
    stores.wait(stores.commit())
    stores.directory.checkpoint_now(stores.directory.homes[1], False)
    for seq in ERASED:
        assert store.delete(seq, erase=True)
    stores.wait(stores.commit())
    stores.directory.wait_applied()
    expected = (store.messages, store.bytes, store.first_seq, store.subject_count)
    stores.close(clean=False)
    stores = FileStores(tmp_path, threaded=False)
    store = stores.stores[1]
    assert (store.messages, store.bytes, store.first_seq, store.subject_count) == expected
    stores.close()


def test_what_was_cut_away_is_overwritten_before_the_cut(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    home = directory.homes[1]
    kept = {block: block.read_bytes() for block in tmp_path.glob("streams/*/*.blk")}
    last = home.last_seq
    assert home.delete(last, erase=True)
    home.cut(last - 1)
    directory.wait(directory.commit())
    directory.close(clean=False)
    for block, content in kept.items():
        block.write_bytes(content)
    directory = DataDirectory(tmp_path, threaded=False)
    assert directory.homes[1].last_seq == last - 1
    assert holders(tmp_path, secret(last)) == []
    directory.close()
