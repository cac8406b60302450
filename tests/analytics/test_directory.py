"""What is read from outside is what the store says, at every moment of its life."""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream import _walk, committed, reading
from pyspark_jetstream.committed import Since, State
from pyspark_jetstream.directory import Directory, StreamFiles
from pyspark_jetstream.errors import BlockDamaged, DataLoss
from pyspark_jetstream.meta import Meta
from pyspark_jetstream.scan import Tally
from pyspark_jetstream.view import StreamView
from storage._store import StreamStore
from storage.filestore import FileStores
from tests.analytics.pauses import instead_of_pauses
from tests.analytics.stores import SMALL_BLOCKS, checkpoint, live, parsed, settings, settle


def rows_read(path: Path) -> list[tuple[int, str, int, bytes]]:
    table = reading.read_table(parsed(path))
    names = ("seq", "subject", "ts_ns", "payload")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def one_step(store: StreamStore, rng: random.Random, now: int) -> None:
    kind = rng.random()
    seq = rng.randint(max(store.first_seq, 1), max(store.last_seq, 1) + 1)
    if kind < 0.75:
        store.store(f"a.{rng.randint(0, 20)}.b", b"", rng.randbytes(rng.randint(0, 60)), now)
    elif kind < 0.87:
        store.delete(seq, rng.random() < 0.3)
    elif kind < 0.91:
        store.skip(rng.randint(1, 5), now)
    elif kind < 0.95:
        store.purge(f"a.{rng.randint(0, 20)}.*")
    elif kind < 0.98:
        store.purge(None, min(seq, store.first_seq + 5))
    elif store.last_seq > 3:
        store.truncate(store.last_seq - rng.randint(0, 3))


def test_a_server_that_writes_all_the_while_does_not_hold_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the log takes so long that another frame is there behind it."""
    large = {**SMALL_BLOCKS, "segment_size": 4 * committed.PIECE_BYTES}
    stores = FileStores(tmp_path / "data", **large)
    store = stores.create(settings("S"))
    looks = []

    def scan_log(*words: Any) -> tuple[list[Any], int, bool]:
        found = _walk.scan_log(*words)
        looks.append(store.store("a", b"", b"payload", len(looks) + 1))
        settle(stores)
        assert len(looks) < 10
        return found

    monkeypatch.setattr(committed, "scan_log", scan_log)
    directory = Directory(str(tmp_path / "data"))
    for _ in range(3):
        before = len(looks)
        (view,) = directory.views()
        assert before <= view.last_seq < len(looks)
    stores.close()


def test_a_block_whose_messages_are_all_deleted_is_not_missed(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 301):
        store.store("a", b"", b"payload %d" % at, at)
    settle(stores)
    for home in stores.directory.homes.values():
        stores.directory.checkpoint_now(home, False)
    (home,) = stores.directory.homes.values()
    block = home.describe_blocks()[2]
    store.delete_many(range(block["first"], block["last"] + 1))
    settle(stores)
    for _ in range(20):
        stores.directory.maintain()
        settle(stores)
    wanted = [seq for seq, *_ in live(store)]
    assert [seq for seq, *_ in rows_read(tmp_path)] == wanted
    assert len(wanted) == 300 - (block["last"] - block["first"] + 1)
    files = list(tmp_path.rglob("*.blk"))
    assert f"{block['number']:016x}.blk" not in {path.name for path in files}, "the case at hand"
    other = next(path for path in sorted(files) if int(path.stem, 16) == block["number"] + 1)
    other.unlink()
    with pytest.raises(DataLoss, match="has no file"):
        rows_read(tmp_path)
    stores.close()


def test_a_log_of_whole_frames_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames of each kind: meta, block, records, forget, erase, drop, cut."""

    def never(seconds: float) -> None:
        raise AssertionError("waited for a torn frame to mend")

    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 301):
        store.store("a", b"", b"payload %d" % at, at)
    store.delete(280)
    store.delete(281, erase=True)
    store.compact(100)
    store.truncate(290)
    settle(stores)
    instead_of_pauses(monkeypatch, never)
    assert [seq for seq, *_ in rows_read(tmp_path)] == [seq for seq, *_ in live(store)]
    stores.close()


@pytest.mark.parametrize("seed", range(8))
def test_reads_what_the_store_holds_while_it_changes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for step in range(1, 1201):
        one_step(store, rng, step * 1000)
        if rng.random() < 0.02:
            stores.directory.maintain()
        if rng.random() < 0.01:
            for home in stores.directory.homes.values():
                home.checkpoint_wanted = True
        if step % 60 == 0:
            settle(stores)
            wanted = [(s, subject, ts, body) for s, subject, ts, _, body in live(store)]
            assert rows_read(tmp_path) == wanted, f"step {step}"
        if step % 400 == 0:
            stores.close(clean=rng.random() < 0.5)
            stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
            (store,) = stores.stores.values()
    stores.close()


@pytest.mark.parametrize("damaged", ["state.a", "state.b"])
@pytest.mark.parametrize("byte", [24, 300], ids=["its index", "its table"])
def test_one_checkpoint_of_the_two_is_enough(tmp_path: Path, damaged: str, byte: int) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 301):
        store.store("a", b"", b"payload %d" % at, at)
    store.delete_many([10, 20])
    wanted = [seq for seq, *_ in live(store)]
    settle(stores)
    stores.close()
    (path,) = tmp_path.rglob(damaged)
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x80
    path.write_bytes(content)
    assert [seq for seq, *_ in rows_read(tmp_path)] == wanted
    path.unlink()
    assert [seq for seq, *_ in rows_read(tmp_path)] == wanted


@pytest.mark.parametrize("kept", [64, 1000], ids=["nothing", "a part"])
def test_an_open_block_that_was_cut_short_is_told(tmp_path: Path, kept: int) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 301):
        store.store("a", b"", b"payload %d" % at, at)
    settle(stores)
    stores.close()
    path = max(tmp_path.rglob("*.blk"))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BlockDamaged, match=f"{path.name} .*at byte {kept}: the file ends too soon"):
        rows_read(tmp_path)
    tally = Tally()
    table = reading.read_table(parsed(tmp_path, failOnDataLoss="false"), tally)
    assert (tally.damaged > 0, 200 < table.num_rows < 300) == (True, True)


@pytest.mark.parametrize("looks_between", [False, True])
def test_a_reader_outlives_a_clean_stop(tmp_path: Path, looks_between: bool) -> None:
    """The log begins anew in a file of the same name: what it has there is not passed over."""
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store, reader = stores.create(settings("S")), Directory(str(tmp_path))
    for at in range(1, 51):
        store.store("a", b"", b"payload" * 10, at)
    settle(stores)
    (view,) = reader.views()
    assert view.last_seq == 50
    for first in (51, 61):
        stores.close()
        if looks_between:
            assert reader.views()[0].last_seq == first - 1
        stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
        (store,) = stores.stores.values()
        for at in range(first, first + 10):
            store.store("a", b"", b"payload", at)
        store.delete(first)
        settle(stores)
        (view,) = reader.views()
        assert view.last_seq == first + 9
        dead = {seq for block in view.blocks for seq in array("Q", block.dead)}
        assert first in dead
    stores.close()


@pytest.mark.parametrize("looks_between", [False, True])
def test_a_reader_outlives_starts_and_groups_given_again(
    tmp_path: Path, looks_between: bool
) -> None:
    """The log that a long query follows: a start may number frames anew and give groups again."""
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    (group,) = stores.stores
    reader = Directory(str(tmp_path))
    assert [view.name for view in reader.views()] == ["$G/S"]
    stores.delete(store)
    settle(stores)
    assert reader.views() == []
    stores.close()
    FileStores(tmp_path / "data", **SMALL_BLOCKS).close()  # the log tells of it until now
    if looks_between:
        assert reader.views() == []
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("OTHER"))
    assert list(stores.stores) == [group], "the case at hand"
    for at in range(1, 101):
        store.store("a", b"", b"payload", at)
    store.delete(50)
    settle(stores)
    (view,) = reader.views()
    assert (view.name, view.last_seq) == ("$G/OTHER", 100)
    assert len(rows_read(tmp_path)) == 99
    stores.close()


@pytest.mark.parametrize("listed", [False, True], ids=["before the listing", "behind it"])
def test_blocks_that_go_while_they_are_looked_at_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """The log was read before the limits dropped them, and the folder is listed after that."""
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 1001):
        store.store("a", b"", b"payload %d" % at, at)
    checkpoint(stores)
    before = len(list(tmp_path.rglob("*.blk")))
    real, looks = StreamFiles._files, []

    def files(self: StreamFiles, state: State) -> list[tuple[int, Path]]:
        looks.append(state.index)
        found = real(self, state) if listed else None
        if len(looks) == 1:
            store.compact(700)
            settle(stores)
            assert len(list(tmp_path.rglob("*.blk"))) < before, "the case at hand"
        return real(self, state) if found is None else found

    monkeypatch.setattr(StreamFiles, "_files", files)
    reader = Directory(str(tmp_path))
    (view,) = reader.views()
    assert (view.missing, view.first_seq, view.last_seq) == ([], 700, 1000)
    assert view.blocks[0].first_seq == 700
    assert len(looks) == 2
    reader.views()
    assert len(looks) == 3
    stores.close()


def test_a_file_that_is_gone_for_good_costs_one_more_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 1001):
        store.store("a", b"", b"payload %d" % at, at)
    checkpoint(stores)
    min(tmp_path.rglob("*.blk")).unlink()
    looks = []
    real = StreamFiles.view

    def counted(self: StreamFiles, meta: Meta, since: Since) -> StreamView:
        looks.append(meta.group)
        return real(self, meta, since)

    monkeypatch.setattr(StreamFiles, "view", counted)
    reader = Directory(str(tmp_path))
    for wanted in (2, 3, 4):
        (view,) = reader.views()
        assert [number for number, _, _ in view.missing] == [1]
        assert len(looks) == wanted
    stores.close()


def test_a_stream_that_is_deleted_while_it_is_looked_at_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 1001):
        store.store("a", b"", b"payload %d" % at, at)
    checkpoint(stores)
    real = StreamFiles._files

    def files(self: StreamFiles, state: State) -> list[tuple[int, Path]]:
        stores.delete(store)
        settle(stores)
        return real(self, state)

    monkeypatch.setattr(StreamFiles, "_files", files)
    assert Directory(str(tmp_path)).views() == []
    stores.close()
