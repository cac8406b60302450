"""Framed blocks: compressed, encrypted, read, erased in, compacted, cut, damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage._directory import DataDirectory
from storage.keys import ServerKeys

SIZES: dict[str, Any] = {
    "segment_size": 256 << 10,
    "log_bytes_max": 1 << 20,
    "block_size_min": 64 << 10,
    "block_size_max": 256 << 10,
}
CODECS = ["zstd", "s2", "lz4"]
KEYS = [None, ServerKeys("the key"), ServerKeys("the key", cipher="aes")]
COUNT = 3000


def message(seq: int) -> tuple[int, int, bytes, bytes, bytes]:
    header = b"NATS/1.0\r\nKind: reading\r\n\r\n" if seq % 4 == 0 else b""
    return seq, seq * 1000, b"sensor.%d" % (seq % 50), header, b"temperature=%d;" % (seq % 97) * 12


def opened(path: Path, codec: str = "zstd", **options: Any) -> DataDirectory:
    return DataDirectory(path, codec_of=lambda settings: codec, **(SIZES | options))


def filled(path: Path, codec: str = "zstd", count: int = COUNT, **options: Any) -> DataDirectory:
    directory = opened(path, codec, **options)
    home = directory.create_stream({"name": "S"})
    for first in range(1, count + 1, 100):
        home.append_many([message(seq) for seq in range(first, min(first + 100, count + 1))])
        directory.wait(directory.commit())
    directory.wait_applied()
    directory.wait_rewritten()
    return directory


def framed(directory: DataDirectory) -> list[bool]:
    return [block["framed"] for block in directory.homes[1].describe_blocks()]


def stored_bytes(path: Path) -> int:
    return sum(block.stat().st_size for block in path.glob("streams/*/*.blk"))


def assert_all_there(
    directory: DataDirectory, gone: set[int] | None = None, last: int = COUNT
) -> None:
    home = directory.homes[1]
    expected = [message(seq) for seq in range(1, last + 1) if seq not in (gone or set())]
    assert home.get_all() == expected
    for seq in (1, 2, last // 2, last - 1, last):
        assert home.get(seq) == (None if seq in (gone or set()) else message(seq))
    assert home.lost == []


@pytest.mark.feature("9.021")
@pytest.mark.parametrize("keys", KEYS, ids=["plain", "chacha", "aes"])
@pytest.mark.parametrize("codec", CODECS)
def test_sealed_blocks_are_compressed_and_read_as_before(
    tmp_path: Path, codec: str, keys: ServerKeys | None
) -> None:
    directory = filled(tmp_path, codec, keys=keys)
    assert framed(directory)[:-1]
    assert all(framed(directory)[:-1])
    assert not framed(directory)[-1]
    assert_all_there(directory)
    assert stored_bytes(tmp_path) < sum(256 for _ in range(COUNT))
    directory.close()
    blocks = sorted(tmp_path.glob("streams/*/*.blk"))[:-1]
    content = b"".join(block.read_bytes() for block in blocks)
    assert content.count(b"temperature") < (COUNT if keys is None else 1)
    directory = opened(tmp_path, codec, keys=keys)
    assert_all_there(directory)
    assert not directory.damage
    directory.close()


@pytest.mark.parametrize("clean", [True, False])
def test_deletes_before_during_and_after(tmp_path: Path, clean: bool) -> None:
    directory = opened(tmp_path)
    home = directory.create_stream({"name": "S"})
    home.append_many([message(seq) for seq in range(1, COUNT + 1)])
    gone = set(range(2, 400, 3))
    for seq in gone:
        home.delete(seq)
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.wait_rewritten()
    assert framed(directory)[0]
    for seq in range(401, 500):
        assert home.delete(seq)
        gone.add(seq)
    directory.wait(directory.commit())
    assert_all_there(directory, gone)
    directory.close(clean)
    directory = opened(tmp_path)
    assert_all_there(directory, gone)
    directory.close()


@pytest.mark.parametrize("keys", [None, ServerKeys("the key")], ids=["plain", "chacha"])
def test_erase_in_a_framed_block(tmp_path: Path, keys: ServerKeys | None) -> None:
    directory = filled(tmp_path, keys=keys)
    home = directory.homes[1]
    view, pinned = home.pinned(10)
    assert home.delete(10, erase=True)
    assert home.delete(11, erase=True)
    assert home.delete(300, erase=True)
    assert view[4] not in bytes(memoryview(pinned)[10 * 200 : 10 * 290])  # type: ignore[arg-type]
    directory.wait(directory.commit())
    directory.wait_applied()
    assert_all_there(directory, {10, 11, 300})
    directory.drop_caches()
    assert_all_there(directory, {10, 11, 300})
    directory.close(clean=False)
    directory = opened(tmp_path, keys=keys)
    assert_all_there(directory, {10, 11, 300})
    assert framed(directory)[0]
    directory.homes[1].check_all()
    assert not directory.homes[1].damage
    directory.close()


def test_an_erase_replayed_over_a_framed_block(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    kept = {block: block.read_bytes() for block in tmp_path.glob("streams/*/*.blk")}
    assert directory.homes[1].delete(10, erase=True)
    directory.wait(directory.commit())
    directory.close(clean=False)
    for block, content in kept.items():  # as if the block thread had not got to it
        block.write_bytes(content)
    directory = opened(tmp_path)
    assert_all_there(directory, {10})
    directory.close()
    directory = opened(tmp_path, "none")
    assert_all_there(directory, {10})
    directory.close()


@pytest.mark.parametrize("keys", [None, ServerKeys("the key")], ids=["plain", "chacha"])
def test_a_mostly_dead_framed_block_is_made_smaller(
    tmp_path: Path, keys: ServerKeys | None
) -> None:
    directory = filled(tmp_path, keys=keys)
    home = directory.homes[1]
    last = home.describe_blocks()[0]["last"]
    gone = set(range(1, last + 1)) - set(range(1, last + 1, 10))
    before = stored_bytes(tmp_path)
    for seq in gone:
        assert home.delete(seq)
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.maintain()
    directory.wait_rewritten()
    first = home.describe_blocks()[0]
    assert (first["dead"], first["framed"], first["sparse"]) == (0, True, True)
    assert stored_bytes(tmp_path) < before
    assert_all_there(directory, gone)
    directory.close()
    directory = opened(tmp_path, keys=keys)
    assert_all_there(directory, gone)
    directory.close()


def test_cut_into_a_framed_block(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    home = directory.homes[1]
    cut = home.describe_blocks()[1]["last"] - 5
    home.cut(cut)
    home.append_many([message(seq) for seq in range(cut + 1, cut + 50)])
    directory.wait(directory.commit())
    assert_all_there(directory, last=cut + 49)
    directory.close(clean=False)
    directory = opened(tmp_path)
    assert_all_there(directory, last=cut + 49)
    directory.close()
    directory = opened(tmp_path)
    assert_all_there(directory, last=cut + 49)
    directory.close()


def test_the_cache_is_bounded_and_views_outlive_it(tmp_path: Path) -> None:
    directory = filled(tmp_path, frame_cache_bytes_max=100 << 10)
    home = directory.homes[1]
    view, pinned = home.pinned(1)
    for seq in range(1, COUNT + 1, 37):
        assert home.get(seq) == message(seq)
    assert directory.stats["frame_cache_bytes"] <= 200 << 10
    assert view[4] in bytes(memoryview(pinned))  # type: ignore[arg-type]
    loads = directory.stats["frame_loads"]
    assert home.get(COUNT // 2) == home.get(COUNT // 2)
    assert directory.stats["frame_loads"] <= loads + 1
    directory.drop_caches()
    assert directory.stats["frame_cache_bytes"] == 0
    assert view[4] in bytes(memoryview(pinned))  # type: ignore[arg-type]
    directory.close()


def test_a_plain_stream_is_compressed_and_encrypted_after_the_settings_change(
    tmp_path: Path,
) -> None:
    directory = filled(tmp_path, "none")
    assert not any(framed(directory))
    directory.close()
    keys = ServerKeys("the key")
    directory = opened(tmp_path, "zstd", keys=keys)
    directory.wait_rewritten()
    assert all(framed(directory)[:-1])
    assert_all_there(directory)
    directory.close()
    everything = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"temperature" not in everything
    assert b"sensor" not in everything


@pytest.mark.parametrize("where", ["frame", "footer", "header", "cut"])
def test_damage_is_found_and_nothing_else_lost(tmp_path: Path, where: str) -> None:
    filled(tmp_path).close()
    path = sorted(tmp_path.glob("streams/*/*.blk"))[1]
    content = bytearray(path.read_bytes())
    if where == "cut":
        del content[-200:]
    else:
        content[{"frame": 64 + 32 + 100, "footer": -60, "header": 20}[where]] ^= 0x10
    path.write_bytes(content)
    directory = opened(tmp_path)
    home = directory.homes[1]
    found = home.get_all()
    lost = {seq for first, last in home.lost for seq in range(first, last + 1)}
    assert [item[0] for item in found] == [seq for seq in range(1, COUNT + 1) if seq not in lost]
    assert all(item == message(item[0]) for item in found)
    assert home.damage
    if where in ("header", "footer", "cut"):
        assert not lost
    directory.close()


@pytest.mark.parametrize("steps", range(8))
def test_a_cut_while_the_block_is_rewritten_brings_nothing_back(tmp_path: Path, steps: int) -> None:
    """Whatever the rewriting has come to when the cut comes."""
    directory = opened(tmp_path, threaded=False)
    home = directory.create_stream({"name": "S"})
    home.append_many([message(seq) for seq in range(1, 1001)])
    directory.wait(directory.commit())
    last = home.describe_blocks()[0]["last"]
    for seq in (3, 4, last - 40):
        assert home.delete(seq)
    for _ in range(steps):
        directory.commit()
        directory.poll()
        directory.maintain()
    home.cut(last - 10)
    directory.wait_rewritten()
    wanted = [seq for seq in range(1, last - 9) if seq not in (3, 4, last - 40)]
    assert [entry[0] for entry in home.get_all()] == wanted
    directory.close()
    directory = opened(tmp_path, threaded=False)
    assert [entry[0] for entry in directory.homes[1].get_all()] == wanted
    directory.close()


def test_incompressible_and_large_records(tmp_path: Path) -> None:
    import random

    noise = random.Random(1).randbytes(200 << 10)
    directory = opened(tmp_path, "lz4")
    home = directory.create_stream({"name": "S"})
    for seq in range(1, 9):
        home.append_many([(seq, seq, b"a", b"", noise[seq:])])
        directory.wait(directory.commit())
    directory.wait_applied()
    directory.wait_rewritten()
    assert framed(directory)[0]
    for seq in range(1, 9):
        found = home.get(seq)
        assert found is not None
        assert found[4] == noise[seq:]
    directory.close()


def test_a_stream_deleted_while_its_blocks_are_rewritten(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for _ in range(5):
        home = directory.create_stream({"name": "S"})
        home.append_many([message(seq) for seq in range(1, COUNT + 1)])
        directory.wait(directory.commit())
        directory.wait_applied()
        directory.maintain()
        directory.wait(directory.commit())
        directory.wait_applied()
        directory.delete_stream(home)
        directory.poll()
    directory.wait_rewritten()
    assert directory.failure is None
    directory.close()
