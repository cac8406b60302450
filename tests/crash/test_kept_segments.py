"""What a start keeps of the log for a stream that it cannot load comes back with meta or key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage._directory import DataDirectory
from storage.filestore import FileStores
from storage.keys import ServerKeys
from tests.crash.damage import (
    KEY,
    SHORT_LOG,
    memory_folder,
    number,
    segment_parts,
    two_streams,
)


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder / "data"


def store(stores: FileStores, group: int, count: int) -> None:
    for _ in range(count):
        stores.stores[group].store("s", b"", b"words", 1)
    stores.wait(stores.commit())


def start_without_meta(path: Path) -> list[str]:
    """Stream 1 is not loaded, stream 2 goes on; what the start after that calls damaged."""
    meta = path / "streams" / f"{1:016x}" / "meta"
    content = meta.read_bytes()
    meta.write_bytes(b"nothing")
    try:
        stores = FileStores(path, **SHORT_LOG)
        assert list(stores.directory.homes) == [2]
        assert list(path.glob("log/*.kept"))
        store(stores, 2, 3)
        stores.close(clean=False)
        stores = FileStores(path, **SHORT_LOG)
        damage = stores.directory.damage
        stores.close(clean=False)
    finally:
        meta.write_bytes(content)
    return [sentence for sentence in damage if ".kept at" in sentence]


def served(path: Path) -> list[int]:
    stores = FileStores(path, **SHORT_LOG)
    found = [entry[0] for entry in stores.directory.homes[1].get_all()]
    stores.close()
    return found


def test_a_torn_end_is_no_damage_to_the_start_after(path: Path) -> None:
    stores = two_streams(path)
    store(stores, 1, 5)
    store(stores, 2, 5)
    stores.close(clean=False)
    (segment,) = path.glob("log/*.seg")
    content = bytearray(segment.read_bytes())
    content[segment_parts(bytes(content), 0)[-1].end - 1] ^= 1
    segment.write_bytes(content)
    assert start_without_meta(path) == []
    assert served(path) == [1, 2, 3, 4, 5]


def test_the_end_of_anothers_whole_is_no_damage(path: Path) -> None:
    stores = two_streams(path)
    stores.stores[2].begin_whole()
    stores.stores[2].store("s", b"", b"words", 1)
    store(stores, 1, 5)
    stores.stores[2].end_whole()
    store(stores, 1, 2)
    stores.close(clean=False)
    assert start_without_meta(path) == []
    assert served(path) == [1, 2, 3, 4, 5, 6, 7]


def test_a_torn_overwriting_can_still_be_mended(path: Path) -> None:
    stores = two_streams(path)
    store(stores, 1, 5)
    store(stores, 2, 1)
    (segment,) = path.glob("log/*.seg")
    before = segment.read_bytes()
    assert stores.directory.homes[1].delete(3, erase=True)
    store(stores, 2, 1)
    stores.directory.wait_applied()
    stores.close(clean=False)
    content = bytearray(segment.read_bytes())
    (part,) = (
        part
        for part in segment_parts(before, 0)[1:]
        if 3 in part.sequences and number(before, part.start + 8, 8) == 1
    )
    assert content[part.start : part.end] != before[part.start : part.end]
    content[part.start : part.start + 40] = before[part.start : part.start + 40]
    segment.write_bytes(content)
    for block in path.glob("streams/*/*.blk"):
        block.unlink()
    start_without_meta(path)
    assert served(path) == [1, 2, 4, 5]


@pytest.mark.feature("4.005")
def test_an_erasure_waits_for_the_key(path: Path) -> None:
    options: dict[str, Any] = SHORT_LOG | {
        "codec_of": lambda settings: "s2",
        "block_size_min": 8 << 10,
        "block_size_max": 16 << 10,
    }
    keys = ServerKeys(KEY)
    directory = DataDirectory(path, keys=keys, **options)
    home = directory.create_stream({"name": "s"})
    for seq in range(1, 101):
        home.append_many([(seq, seq, b"s", b"", b"%d " % seq * 200)])
    directory.wait(directory.commit())
    directory.wait_rewritten()
    directory.checkpoint_now(home, False)
    assert home.describe_blocks()[0]["framed"]
    block = min(path.glob("streams/*/*.blk"))
    before = block.read_bytes()
    assert home.delete(3, erase=True)
    directory.wait(directory.commit())
    directory.close(clean=False)
    block.write_bytes(before)
    for _ in range(2):
        directory = DataDirectory(path, **options)
        assert list(directory.locked) == [1]
        assert any("a record to erase" in what for what in directory.locked[1][0].damage)
        directory.close()
    assert block.read_bytes() == before
    directory = DataDirectory(path, keys=keys, **options)
    home = directory.homes[1]
    assert [entry[0] for entry in home.get_all()] == [1, 2, *range(4, 101)]
    assert block.read_bytes() != before
    assert (home.lost, home.damage) == ([], [])
    directory.close()
    assert not list(path.glob("log/*"))
