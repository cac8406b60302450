"""Damaged headers, trailers, indexes, frame tables; files half made, and files of another time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream import reading, scan
from pyspark_jetstream.blockfile import TRAILER_BYTES, Block, LocalSource, Source
from pyspark_jetstream.directory import Directory, StreamFiles
from pyspark_jetstream.errors import BlockDamaged, DataLoss, NotUsable
from pyspark_jetstream.plan import Piece
from pyspark_jetstream.view import BlockView, StreamView
from storage._store import StreamStore
from storage.filestore import FileStores
from tests.analytics.pauses import instead_of_pauses
from tests.analytics.stores import SMALL_BLOCKS, checkpoint, live, parsed, settings, settle

COUNT = 4000
EVERYTHING = list(range(1, COUNT + 1))
BLOCKS: dict[str, Any] = {
    "threaded": False,
    "block_size_min": 1 << 18,
    "block_size_max": 1 << 18,
    "segment_size": 1 << 22,
}


def fill(store: StreamStore, count: int) -> None:
    for at in range(store.last_seq + 1, store.last_seq + 1 + count):
        store.store("a", b"", b"%0200d" % at, at)


def filled(path: Path, codec: str) -> Path:
    """A few sealed blocks, when framed of four frames each, and an open one; stopped cleanly."""
    stores = FileStores(path / "data", codec_of=lambda settings: codec, **BLOCKS)
    fill(stores.create(settings("S")), COUNT)
    settle(stores)
    stores.directory.wait_rewritten()
    checkpoint(stores)
    stores.close()
    return path


@pytest.fixture(params=["none", "zstd"], ids=["plain", "framed"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return filled(tmp_path, request.param)


@pytest.fixture
def framed(tmp_path: Path) -> Path:
    return filled(tmp_path, "zstd")


def view_of(path: Path) -> StreamView:
    (view,) = Directory(str(path)).views()
    return view


def second(path: Path) -> BlockView:
    """Of the sealed blocks."""
    return [block for block in view_of(path).blocks if block.sealed][1]


def flip(location: str, at: int) -> None:
    """One bit of a file; `at` below 0: from the end."""
    content = bytearray(Path(location).read_bytes())
    content[at] ^= 1
    Path(location).write_bytes(content)


def seqs(path: Path, **more: str) -> list[int]:
    found: list[int] = reading.read_table(parsed(path, **more)).column("seq").to_pylist()
    return found


def tolerant(path: Path, **more: str) -> tuple[list[int], int]:
    """What holds, and how often something did not."""
    tally, asked = scan.Tally(), parsed(path, failOnDataLoss="false", **more)
    return reading.read_table(asked, tally).column("seq").to_pylist(), tally.damaged


def without(block: BlockView) -> list[int]:
    return [seq for seq in EVERYTHING if not block.first_seq <= seq <= block.last_seq]


@pytest.mark.parametrize("at", [-1, -TRAILER_BYTES, -50])
def test_a_damaged_trailer_hides_nothing(data: Path, at: int) -> None:
    """The checkpoint tells how far a sealed block goes; frames are found by their own checksums."""
    block = second(data)
    flip(block.location, at)
    assert seqs(data) == EVERYTHING
    assert seqs(data, failOnDataLoss="false") == EVERYTHING
    some = range(block.first_seq + 700, block.last_seq + 100)
    bounds = {"startingOffsets": str(some.start), "endingOffsets": str(some.stop)}
    assert seqs(data, **bounds) == list(some)
    assert [one.sealed for one in view_of(data).blocks][:3] == [True] * 3


def test_a_record_behind_a_damaged_trailer_is_told(data: Path) -> None:
    block = second(data)
    flip(block.location, -1)
    flip(block.location, Path(block.location).stat().st_size // 3)
    with pytest.raises(BlockDamaged, match=Path(block.location).name):
        seqs(data)
    found, damaged = tolerant(data)
    assert damaged > 0
    assert set(found) >= set(without(block))


@pytest.mark.parametrize("at", [0, 12, 16, 24, 40, 48, 60])
def test_a_damaged_header_stops_only_who_wants_the_block(data: Path, at: int) -> None:
    block = second(data)
    flip(block.location, at)
    with pytest.raises(DataLoss, match=rf"{Path(block.location).name} is damaged at byte \d+"):
        seqs(data)
    before = seqs(data, endingOffsets=str(block.first_seq))
    assert before == list(range(1, block.first_seq))
    behind = seqs(data, startingOffsets=str(block.last_seq + 1))
    assert behind == list(range(block.last_seq + 1, COUNT + 1))
    assert seqs(data, failOnDataLoss="false") == without(block)


def test_a_damaged_index_is_gone_without(data: Path) -> None:
    block = second(data)
    flip(block.location, -TRAILER_BYTES - 8)
    bounds = {"startingOffsets": str(block.first_seq + 5)}
    wanted = list(range(block.first_seq + 5, COUNT + 1))
    with pytest.raises(BlockDamaged, match="the checksum of the index"):
        seqs(data, **bounds)
    found, damaged = tolerant(data, **bounds)
    assert (found, damaged > 0) == (wanted, True)


def test_a_damaged_frame_table_costs_only_frames_that_do_not_hold(framed: Path) -> None:
    block = second(framed)
    flip(block.location, -TRAILER_BYTES - 4)
    with pytest.raises(BlockDamaged, match="the checksum of the index"):
        seqs(framed)
    assert seqs(framed, failOnDataLoss="false") == EVERYTHING
    flip(block.location, Path(block.location).read_bytes().index(b"FRM1", 100) + 40)
    some = seqs(framed, failOnDataLoss="false")
    assert set(some) > set(without(block))
    assert 0 < COUNT - len(some) < block.messages / 2
    flip(block.location, -1)
    with pytest.raises(BlockDamaged, match="no frame with the records from byte"):
        seqs(framed)
    assert seqs(framed, failOnDataLoss="false") == some


def test_a_frame_that_does_not_unpack_is_damage(
    framed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow

    def fails(*_: object, **__: object) -> bytes:
        raise OSError("no zstd frame")

    monkeypatch.setattr(pyarrow, "decompress", fails)
    with pytest.raises(BlockDamaged, match="zstd says no zstd frame"):
        seqs(framed)
    found, damaged = tolerant(framed)
    assert (len(found) < COUNT, damaged > 3) == (True, True)


@pytest.mark.parametrize("size", [0, 7, 1 << 16])
def test_a_block_that_is_just_being_made_is_not_there_yet(data: Path, size: int) -> None:
    last = max(data.rglob("*.blk"))
    fresh = last.with_name(f"{int(last.stem, 16) + 1:016x}.blk")
    fresh.write_bytes(bytes(size))
    assert seqs(data) == EVERYTHING


def test_a_header_behind_the_checkpoint_is_waited_for_and_then_told(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = max(data.rglob("*.blk"))
    fresh = last.with_name(f"{int(last.stem, 16) + 1:016x}.blk")
    fresh.write_bytes(b"MARTBLK1" + bytes(100))
    waits = []

    def mend(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            fresh.write_bytes(bytes(100))

    instead_of_pauses(monkeypatch, mend)
    assert seqs(data) == EVERYTHING
    assert len(waits) == 3


@pytest.mark.parametrize("size", [0, 20, 60])
def test_a_stream_whose_meta_is_just_being_written_is_not_there_yet(data: Path, size: int) -> None:
    (meta,) = data.rglob("meta")
    fresh = meta.parent.with_name("00000000000000ff")
    fresh.mkdir()
    (fresh / "meta").write_bytes(meta.read_bytes()[:size])
    assert seqs(data) == EVERYTHING


def test_a_meta_that_is_written_meanwhile(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (meta,) = data.rglob("meta")
    content = meta.read_bytes()
    meta.write_bytes(content[:30])
    instead_of_pauses(monkeypatch, lambda seconds: meta.write_bytes(content))
    assert seqs(data) == EVERYTHING


def test_a_damaged_meta_stops_only_who_may_want_the_stream(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    for name in ("S", "OTHER"):
        fill(stores.create(settings(name)), 50)
    settle(stores)
    stores.close()
    flip(str(next(path for path in tmp_path.rglob("meta") if b"OTHER" in path.read_bytes())), 50)
    assert seqs(tmp_path, streams="S") == list(range(1, 51))
    for more in ({}, {"streamsPattern": "S"}, {"streams": "OTHER"}, {"streams": "S,OTHER"}):
        with pytest.raises(NotUsable, match="meta is damaged: its checksum does not hold"):
            seqs(tmp_path, **more)


# -- files of another time -------------------------------------------------------------------------


def test_a_block_in_the_place_of_another(data: Path) -> None:
    block, other = second(data), view_of(data).blocks[0]
    shutil.copy(other.location, block.location)
    with pytest.raises(DataLoss, match=r"block 0+1 in the place of 0+2"):
        seqs(data)
    assert seqs(data, failOnDataLoss="false") == without(block)


def test_an_older_copy_of_a_block_is_told(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    fill(store, 200)
    checkpoint(stores)
    block = second(tmp_path)
    before = Path(block.location).read_bytes()
    store.delete_many([seq for seq in range(block.first_seq, block.last_seq + 1) if seq % 6])
    checkpoint(stores)
    now = Path(block.location).read_bytes()
    assert len(now) < len(before), "the case at hand"
    rows = seqs(tmp_path)
    Path(block.location).write_bytes(before)
    with pytest.raises(DataLoss, match="a copy from before it was rewritten"):
        seqs(tmp_path)
    Path(block.location).write_bytes(now)
    assert seqs(tmp_path) == rows == [seq for seq, *_ in live(store)]
    stores.close()


def test_a_block_of_another_history_is_told(tmp_path: Path) -> None:
    """Of two directories that were one: the same stream, block and sequences, other messages."""
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    fill(stores.create(settings("S")), 3)
    settle(stores)
    stores.close()
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "data", other / "data")
    for path, word in ((tmp_path, b"one"), (other, b"two")):
        stores = FileStores(path / "data", **SMALL_BLOCKS)
        (store,) = stores.stores.values()
        for at in range(4, 300):
            store.store("a", b"", b"%s %d" % (word, at), at)
        settle(stores)
        stores.close()
    blocks = sorted(tmp_path.glob("data/streams/*/*.blk"))
    for name in (blocks[0].name, blocks[2].name):
        mine = next(tmp_path.glob(f"data/streams/*/{name}"))
        kept = mine.read_bytes()
        shutil.copy(next(other.glob(f"data/streams/*/{name}")), mine)
        with pytest.raises(DataLoss, match="not the block"):
            seqs(tmp_path)
        mine.write_bytes(kept)
    assert seqs(tmp_path) == list(range(1, 300))


def test_dead_bits_of_a_file_that_was_rewritten_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint's bits are of its slots; in the new file these slots are other messages."""
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 301):
        store.store("a", b"", b"payload %d" % at, at)
    checkpoint(stores)
    first, last = view_of(tmp_path).blocks[1].first_seq, view_of(tmp_path).blocks[1].last_seq
    store.delete_many([seq for seq in range(first, last + 1) if seq % 2])
    checkpoint(stores)  # compacted: sparse
    store.delete(first + first % 2)
    store.delete(first + first % 2 + 4)
    for home in stores.directory.homes.values():
        stores.directory.checkpoint_now(home, False)
    settle(stores)
    shutil.copytree(tmp_path / "data", tmp_path / "then" / "data")
    store.delete_many([seq for seq in range(first, last + 1) if seq % 8])
    checkpoint(stores)
    then = view_of(tmp_path / "then").blocks[1].location
    now = view_of(tmp_path).blocks[1].location
    assert Path(now).stat().st_size < Path(then).stat().st_size, "the case at hand"
    real = StreamFiles._dead_of

    def rewritten(self: StreamFiles, path: Path, *more: Any) -> set[int]:
        if str(path) == then:
            shutil.copy(now, then)
        return real(self, path, *more)

    monkeypatch.setattr(StreamFiles, "_dead_of", rewritten)
    wanted = [seq for seq, *_ in live(store)]
    assert [seq for seq in seqs(tmp_path / "then") if first <= seq <= last] == [
        seq for seq in wanted if first <= seq <= last
    ]
    stores.close()


# -- patience --------------------------------------------------------------------------------------


class Torn:
    """Opens files; of one the first readings are of a moment in which it does not hold."""

    def __init__(self, location: str, times: int) -> None:
        self.location, self.times = location, times

    def __call__(self, location: str, whole: bool) -> Source:
        if location == self.location and self.times:
            self.times -= 1
            content = bytearray(Path(location).read_bytes())
            content[len(content) // 2] ^= 1
            torn = Path(location).with_suffix(".torn")
            torn.write_bytes(content)
            return LocalSource(str(torn))
        return LocalSource(location)


def read_with(path: Path, opener: scan.Opener, tally: scan.Tally, **more: str) -> list[int]:
    asked = parsed(path, **more)
    pieces = reading.plan_batch(reading.open_store(asked), asked)
    found = scan.read_pieces(pieces, reading.scan_of(asked), tally, opener)
    return [seq for batch in found for seq in batch.column("seq").to_pylist()]


@pytest.mark.parametrize("strict", ["true", "false"])
def test_what_is_torn_for_a_while_is_waited_for(
    data: Path, strict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instead_of_pauses(monkeypatch, lambda seconds: None)
    torn, tally = Torn(second(data).location, 5), scan.Tally()
    assert read_with(data, torn, tally, failOnDataLoss=strict, batchBytes="4096") == EVERYTHING
    assert (torn.times, tally.damaged) == (0, 0)


def test_a_block_that_moves_and_is_damaged_is_not_read_with_tolerance(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage behind a replacement is an error as well, unless the option says otherwise."""
    instead_of_pauses(monkeypatch, lambda seconds: None)
    torn = Torn(second(data).location, 1 << 30)
    opened = []

    def opener(location: str, whole: bool) -> Source:
        opened.append(location)
        if opened.count(torn.location) == 2 and location == torn.location:
            raise FileNotFoundError(location)
        return torn(location, whole)

    def same(reader: scan.PieceReader) -> Piece:
        return reader.piece

    monkeypatch.setattr(scan.PieceReader, "_successor", same)
    with pytest.raises(BlockDamaged):
        read_with(data, opener, scan.Tally())


def test_a_block_without_a_number_is_any(data: Path) -> None:
    view, block = view_of(data), second(data)
    with Block(LocalSource(block.location), view.salt, view.group) as opened:
        assert opened.head.number == block.number


def test_a_record_that_is_erased_while_it_is_read_is_no_random_row(tmp_path: Path) -> None:
    """It held when it was looked at; what the file has a moment later is random bytes."""
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 301):
        store.store(f"a.{at}", b"", b"payload of %d" % at, at)
    settle(stores)
    asked = parsed(tmp_path, subject="a.*", columns="seq,payload")
    (piece, *_) = reading.plan_batch(reading.open_store(asked), asked)
    reader = scan.PieceReader(piece, reading.scan_of(asked), scan.Tally(), scan.open_source)
    erased = []

    def accepts(subject: bytes) -> bool:
        if subject == b"a.9" and not erased:
            erased.append(store.delete(9, erase=True))
            settle(stores)
        return True

    reader._accepts = accepts
    rows = [row for batch in reader.batches() for row in batch.to_pylist()]
    there = [row for row in rows if row["seq"] != 9]
    wanted = [seq for seq in range(piece.first, piece.last + 1) if seq != 9]
    assert there == [{"seq": seq, "payload": b"payload of %d" % seq} for seq in wanted]
    assert [row["payload"] for row in rows if row["seq"] == 9] in ([], [b"payload of 9"])
    assert erased == [True]
    stores.close()
