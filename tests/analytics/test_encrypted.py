"""Encrypted and framed blocks: read with the key, refused without, damage told without either."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest

from pyspark_jetstream import reading, scan
from pyspark_jetstream._walk import checksum
from pyspark_jetstream.archive import Uploader
from pyspark_jetstream.blockfile import FRAME, TIMES_SLOTS, Block, BlockDamaged, LocalSource
from pyspark_jetstream.errors import NotUsable
from storage.filestore import FileStores
from storage.keys import ServerKeys
from tests.analytics.stores import SMALL_BLOCKS, checkpoint, live, parsed, settings, settle


def rows(path: Path, **more: str) -> list[tuple[int, str, bytes]]:
    table = reading.read_table(parsed(path, **more))
    names = ("seq", "subject", "payload")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("cipher", ["chacha", "aes"])
def test_records_are_read_with_the_key_only(
    tmp_path: Path, cipher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MARTLET_ENCRYPTION_KEY", raising=False)
    keys = ServerKeys("correct horse", cipher=cipher)
    stores = FileStores(tmp_path / "data", keys=keys, **SMALL_BLOCKS)
    store = stores.create(settings("SECRETS"))
    for at in range(1, 401):
        store.store(f"a.{at % 3}", b"NATS/1.0\r\nK: v\r\n\r\n" if at % 2 else b"", b"p%d" % at, at)
    store.delete_many([3, 4])
    store.delete(90, erase=True)
    settle(stores)
    wanted = [(seq, subject, payload) for seq, subject, _, _, payload in live(store)]
    with pytest.raises(NotUsable, match="is encrypted: give option encryptionKeyFile"):
        rows(tmp_path)
    right, wrong = tmp_path / "key", tmp_path / "wrong"
    right.write_text("correct horse\n")
    wrong.write_text("battery staple")
    assert rows(tmp_path, encryptionKeyFile=str(right)) == wanted
    with pytest.raises(NotUsable, match="does not open with this key"):
        rows(tmp_path, encryptionKeyFile=str(wrong))
    monkeypatch.setenv("MARTLET_ENCRYPTION_KEY", "correct horse")
    assert rows(tmp_path, subject="a.1") == [row for row in wanted if row[1] == "a.1"]
    Uploader(str(tmp_path), str(tmp_path / "archive")).run()
    archived = rows(tmp_path / "archive")
    assert archived == wanted[: len(archived)]
    assert len(archived) > 200
    stores.close()


@pytest.mark.parametrize("damaged", [1, 5], ids=["the first record", "another"])
def test_one_damaged_record_costs_no_other(
    tmp_path: Path, damaged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARTLET_ENCRYPTION_KEY", "correct horse")
    keys = ServerKeys("correct horse")
    stores = FileStores(tmp_path / "data", keys=keys, **SMALL_BLOCKS)
    store = stores.create(settings("SECRETS"))
    for at in range(1, 401):
        store.store("a", b"", b"p%d" % at, at)
    checkpoint(stores)
    stores.close()
    path = min(tmp_path.rglob("*.blk"))
    content = bytearray(path.read_bytes())
    at = 64
    for _ in range(damaged - 1):
        at += int.from_bytes(content[at : at + 4], "little")
    content[at] ^= 0x80
    path.write_bytes(content)
    with pytest.raises(BlockDamaged, match=f"{path.name} is damaged at byte {at}: "):
        rows(tmp_path)
    tally = scan.Tally()
    asked = parsed(tmp_path, failOnDataLoss="false")
    found = reading.read_table(asked, tally).column("seq").to_pylist()
    assert found == [seq for seq in range(1, 401) if seq != damaged]
    assert (tally.damaged, f"at byte {at}: " in tally.notes[0]) == (1, True)


def frame_block(path: Path, salt: int, group: int, per_frame: int, codec: int) -> None:
    """Rewrite a plain sealed block as a framed one, by the words of the format."""
    compress: Callable[[bytes], bytes] = {
        0: lambda data: data,
        1: lambda data: pyarrow.compress(data, codec="zstd", asbytes=True),
        2: lambda data: pyarrow.compress(data, codec="snappy", asbytes=True),
        3: lambda data: pyarrow.compress(data, codec="lz4_raw", asbytes=True),
    }[codec]
    with Block(LocalSource(str(path)), salt, group) as block:
        assert block.footer is not None
        footer, body = block.footer, block.body()
        ((_, records),) = block.runs()
    content = path.read_bytes()
    out = bytearray(content[:64])
    struct.pack_into("<HHI", out, 8, 2, 1, footer.generation + 1)
    struct.pack_into("<Q", out, 56, checksum(out[:56]))
    table, at = b"", 0
    while at < len(records):
        end = at
        while end < len(records) and end - at < per_frame:
            end += int.from_bytes(records[end : end + 4], "little")
        packed = compress(records[at:end])
        head = FRAME.pack(b"FRM1", codec, 0, 0, len(packed), at + 64, end - at, 0, 0)[:24]
        table += struct.pack("<II", len(out), at + 64)
        check = checksum(packed, checksum(head, salt))
        out += head + check.to_bytes(8, "little") + packed
        out += bytes(-len(out) % 8)
        at = end
    index_start = len(out)
    times = len(body) - 16 * -(-footer.slots // TIMES_SLOTS)
    body = body[:times] + bytes(-times % 8) + body[times:] + table
    trailer = bytearray(content[-128:])
    moved = footer.summary_start - footer.index_start + index_start
    struct.pack_into("<II", trailer, 60, index_start, moved)
    struct.pack_into("<II", trailer, 104, footer.generation + 1, len(table) // 8)
    struct.pack_into("<Q", trailer, 112, checksum(body, salt))
    struct.pack_into("<Q", trailer, 120, checksum(trailer[:120], salt))
    path.write_bytes(bytes(out) + body + bytes(trailer))


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_framed_blocks_by_the_format(tmp_path: Path, codec: int) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 601):
        store.store(f"a.{at % 3}", b"", b"payload of %d" % at, at)
    store.delete_many([10, 11])
    settle(stores)
    wanted = [(seq, subject, payload) for seq, subject, _, _, payload in live(store)]
    (view,) = reading.open_store(parsed(tmp_path)).views(lambda account, stream: True)
    for block in view.blocks:
        if block.sealed:
            frame_block(Path(block.location), view.salt, view.group, 1500, codec)
    assert rows(tmp_path) == wanted
    assert rows(tmp_path, minPartitions="40") == wanted
    some = rows(tmp_path, startingOffsets="200", endingOffsets="220", subject="a.*")
    assert some == [row for row in wanted if 200 <= row[0] < 220]
    stores.close()


def test_a_damaged_frame_is_named_or_left_out(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 601):
        store.store("a", b"", b"payload of %d" % at, at)
    settle(stores)
    stores.close()
    (view,) = reading.open_store(parsed(tmp_path)).views(lambda account, stream: True)
    path = Path(next(block.location for block in view.blocks if block.data_end > 6000))
    frame_block(path, view.salt, view.group, 1500, 1)
    content = bytearray(path.read_bytes())
    second = content.index(b"FRM1", 70)
    content[second + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(BlockDamaged, match=f"at byte {second}: the checksum of the frame"):
        rows(tmp_path)
    tally = scan.Tally()
    table = reading.read_table(parsed(tmp_path, failOnDataLoss="false"), tally)
    assert tally.damaged == 1
    assert 500 < table.num_rows < 600


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    stores.create(settings("S")).store("a", b"", b"p", 1)
    settle(stores)
    stores.close()
    path = tmp_path / "data" / "directory"
    content = bytearray(path.read_bytes())
    content[8] = 99
    content[56:64] = checksum(content[:56]).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(NotUsable, match="format version 99; this reads up to 2"):
        rows(tmp_path)
