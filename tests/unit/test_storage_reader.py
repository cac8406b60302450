"""FORMAT.md is enough for a stranger: a reader written from it alone says what the store says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream.committed import LogTail
from storage._cipher import aes_available
from storage._directory import DataDirectory
from storage.filestore import FileStores
from storage.identity import read_identity
from storage.keys import ServerKeys
from storage.ports import StoreLimits
from tests.golden.content import KEY, LAST, RESERVED, expected
from tests.golden.make import FOLDER, VARIANTS
from tests.golden.reader import Stream, read_directory
from tests.unit.test_storage_golden import FILES, unpacked

SIZES: dict[str, Any] = {
    "segment_size": 16 << 10,
    "block_size_min": 2 << 10,
    "block_size_max": 16 << 10,
    "threaded": False,
}
CLOCK_START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


def needs_aes(name: str) -> None:
    if name.endswith("aes") and not aes_available():
        pytest.skip("no AES instructions here")


@pytest.mark.parametrize("source", FILES, ids=lambda file: file.stem)
def test_reads_the_golden_directories(source: Path, tmp_path: Path) -> None:
    key = KEY if source.stem.endswith(("aes", "chacha")) else ""
    stream = read_directory(unpacked(source, tmp_path / "data"), key)[1]
    assert [message for _, message in sorted(stream.messages.items())] == expected()
    assert stream.skips == dict([RESERVED])
    assert (stream.last_seq, stream.meta.settings["detail"]) == (LAST, "as it was")


def options(variant: str) -> dict[str, Any]:
    codec, keys = VARIANTS[variant]
    return SIZES | {"codec_of": lambda settings: codec, "keys": keys}


def settle(stores: FileStores) -> None:
    stores.wait(stores.commit())
    stores.directory.wait_applied()
    stores.directory.wait_rewritten()
    stores.directory.maintain()
    stores.wait(stores.commit())
    stores.directory.wait_applied()


def fill(stores: FileStores, rng: random.Random, now_ns: int) -> None:
    """Some of everything: headers, time to live, skips, deletes, erasures, purges, truncation."""
    store = stores.stores[1]
    for count in range(150):
        headers = b"NATS/1.0\r\nCount: %d\r\n\r\n" % count if count % 4 == 0 else b""
        body = b"%d %d " % (now_ns, count) * rng.randint(0, 30) + rng.randbytes(rng.randint(0, 40))
        ttl_ns = 5 * SECOND_NS if count % 9 == 0 else 0
        store.store(f"s.{rng.randint(0, 20)}", headers, body, now_ns + count, ttl_ns)
        if count % 50 == 49:
            store.skip(3)
        if count % 30 == 29:
            settle(stores)
    for seq in rng.sample(range(store.first_seq, store.last_seq), 40):
        store.delete(seq, erase=seq % 3 == 0)
    store.purge("s.7")
    settle(stores)
    store.truncate(store.last_seq - 7)
    settle(stores)


def compare(path: Path, stores: FileStores, key: str) -> Stream:
    """What is served, while the server runs, by another reader of its files."""
    home = stores.directory.homes[1]
    stream = read_directory(path, key)[1]
    entries = home.get_all()
    assert [m for _, m in sorted(stream.messages.items())] == [e for e in entries if len(e) == 5]
    assert [s for s in sorted(stream.skips.items()) if sum(s) > stream.floor] == [
        entry for entry in entries if len(entry) == 2
    ]
    assert (stream.last_seq, stream.floor) == (home.last_seq, home.floor)
    return stream


@pytest.mark.parametrize("variant", VARIANTS)
def test_reads_what_a_store_has_just_written(tmp_path: Path, variant: str) -> None:
    """With checkpoints in all places: the log's part and the blocks' part differ each time."""
    needs_aes(variant)
    rng, path, key = random.Random(variant), tmp_path / "data", KEY if VARIANTS[variant][1] else ""
    limits = StoreLimits(messages_max=400, allow_ttl=True)
    blocks = []
    for run in range(4):
        stores = FileStores(path, limits_of=lambda settings: limits, **options(variant))
        if run == 0:
            stores.create({"name": "one"}, limits)
        fill(stores, rng, CLOCK_START_NS + run * 10 * SECOND_NS)
        compare(path, stores, key)
        while stores.stores[1].expire(CLOCK_START_NS + (run * 10 + 6) * SECOND_NS).more:
            pass
        stores.stores[1].enforce()
        settle(stores)
        stream = compare(path, stores, key)
        blocks += stores.directory.homes[1].describe_blocks()
        stores.close(clean=run % 2 == 0)
        assert read_directory(path, key)[1].messages == stream.messages
    assert any(block["generation"] for block in blocks)
    assert any(block["framed"] for block in blocks) == (VARIANTS[variant][0] != "none")


def test_a_mostly_dead_block_and_a_rewrite_behind_the_checkpoint(tmp_path: Path) -> None:
    """The table still has the places of before; the file left the dead ones out."""
    directory = DataDirectory(tmp_path, **SIZES)
    home = directory.create_stream({"name": "one"})
    home.append_many([(seq, seq, b"s", b"", b"body %d" % seq) for seq in range(1, 400)])
    directory.wait(directory.commit())
    directory.close()
    directory = DataDirectory(tmp_path, **SIZES)
    home = directory.homes[1]
    for seq in range(1, 60):
        if seq % 8:
            home.delete(seq)
    directory.wait(directory.commit())
    for _ in range(6):
        directory.maintain()
        directory.wait(directory.commit())
        directory.wait_applied()
    assert any(block["generation"] for block in home.describe_blocks())
    wanted = home.get_all()
    directory.close(clean=False)
    stream = read_directory(tmp_path)[1]
    assert sorted(stream.messages.values()) == wanted


def test_deleted_and_new_streams_follow_from_the_log(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path, **SIZES)
    first, second = (directory.create_stream({"name": name}) for name in ("one", "two"))
    second.append_many([(1, 1, b"s", b"", b"kept")])
    directory.delete_stream(first)
    directory.wait(directory.commit())
    directory.close(clean=False)
    streams = read_directory(tmp_path)
    assert {group: stream.meta.settings["name"] for group, stream in streams.items()} == {2: "two"}
    assert streams[2].messages == {1: (1, 1, b"s", b"", b"kept")}


@pytest.mark.feature("3.044")
def test_a_whole_that_the_disk_has_in_part_is_not_read(tmp_path: Path) -> None:
    stores = FileStores(tmp_path, **SIZES)
    store, other = (stores.create({"name": name}) for name in ("one", "two"))
    identity, salt = read_identity(tmp_path)
    tail = LogTail(tmp_path / "log", identity, salt)

    def seen() -> tuple[list[int], int]:
        stores.wait(stores.commit())
        tail.refresh()
        return sorted(read_directory(tmp_path, "")[1].messages), tail.groups[1].last_seq

    store.store("a", b"", b"1", 1)
    assert seen() == ([1], 1)
    store.begin_whole()
    for _ in range(3):
        store.store("a", b"", b"2", 1)
        other.store("b", b"", b"2", 1)
    assert seen() == ([1], 1)
    store.store("a", b"", b"3", 1)
    other.store("b", b"", b"3", 1)
    store.end_whole()
    assert seen() == ([1, 2, 3, 4, 5], 5)
    store.store("a", b"", b"4", 1)
    assert seen() == ([1, 2, 3, 4, 5, 6], 6)
    stores.close()


def test_the_golden_files_are_those_of_the_variants() -> None:
    assert {path.stem.removeprefix("storage-") for path in FOLDER.glob("*.json")} >= set(VARIANTS)
    assert all(isinstance(keys, ServerKeys | None) for _, keys in VARIANTS.values())
