"""A streaming reader while the stream moves under it: each row once, or the loss is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from storage._store import StreamStore
from storage.filestore import FileStores
from tests.analytics.stores import live, parsed, settings, settle

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'martlet[spark]'")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_jetstream import export, left_out, reading
from pyspark_jetstream.archive import Uploader
from pyspark_jetstream.directory import Directory
from pyspark_jetstream.errors import DataLoss, OptionError
from pyspark_jetstream.limits import end_of_messages
from pyspark_jetstream.scan import Tally
from pyspark_jetstream.source import BatchReader
from pyspark_jetstream.streaming import StreamReader
from tests.analytics.test_spark import drain

Offset = dict[str, int]
SIZES: dict[str, Any] = {
    "threaded": False,
    "block_size_min": 64 << 10,
    "block_size_max": 64 << 10,
    "segment_size": 1 << 20,
}
COUNT = 2000


def fill(store: StreamStore, count: int = COUNT) -> None:
    for at in range(store.last_seq + 1, store.last_seq + count + 1):
        store.store(f"a.{at % 7}", b"", b"payload %d;" % at * 10, at)


@pytest.fixture(params=["plain", "compressed"])
def stores(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FileStores]:
    codec = {"codec_of": lambda settings: "zstd"} if request.param == "compressed" else {}
    made = FileStores(tmp_path / "data", **SIZES, **codec)
    yield made
    made.close()


@pytest.fixture
def store(stores: FileStores) -> StreamStore:
    made = stores.create(settings("S"))
    fill(made)
    settled(stores)
    return made


def settled(stores: FileStores) -> None:
    settle(stores)
    stores.directory.wait_rewritten()
    settle(stores)


def compacted(stores: FileStores) -> None:
    for home in stores.directory.homes.values():
        stores.directory.checkpoint_now(home, False)
    for _ in range(40):
        stores.directory.maintain()
        settled(stores)


def made_anew(stores: FileStores, count: int) -> StreamStore:
    (before,) = stores.stores.values()
    stores.delete(before)
    store = stores.create(settings("S"))
    fill(store, count)
    settled(stores)
    return store


def reader(path: Path, **more: str) -> StreamReader:
    return StreamReader(parsed(path, columns="seq", startingOffsets="earliest", **more))


def through_json(offset: Offset) -> Offset:
    """As a checkpoint keeps it."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def seqs_of(source: StreamReader, start: Offset, end: Offset) -> list[int]:
    parts = source.partitions(start, end)
    batches = [batch for part in parts for batch in source.read(part)]
    return [seq for batch in batches for seq in batch.column("seq").to_pylist()]


def seqs(store: StreamStore) -> list[int]:
    return [seq for seq, *_ in live(store)]


def test_restarts_at_every_step_take_each_row_once(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    """A new process plans a batch again from what the checkpoint says; deletes come meanwhile."""
    offset, taken = reader(tmp_path).initialOffset(), []
    for step in range(1, 30):
        end = reader(tmp_path).latestOffset(through_json(offset), ReadMaxRows(130))
        if step == 8:
            store.delete_many(range(1, 1000, 2))
            compacted(stores)
        if step == 4:
            fill(store, 300)
            settled(stores)
        first = seqs_of(reader(tmp_path), through_json(offset), through_json(end))
        assert seqs_of(reader(tmp_path), through_json(offset), through_json(end)) == first
        taken += first
        offset = end
    assert sorted(set(taken)) == taken
    assert set(seqs(store)) <= set(taken)
    assert taken[-1] == store.last_seq == COUNT + 300


def test_blocks_rewritten_between_planning_and_reading(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    source = reader(tmp_path, batchBytes="4096", minPartitions="3")
    start = source.initialOffset()
    parts = source.partitions(start, source.latestOffset(start, ReadAllAvailable()))
    half_read = [source.read(part) for part in parts]
    found = [seq for one in half_read for seq in next(one).column("seq").to_pylist()]
    store.delete_many([seq for seq in seqs(store) if seq % 10])
    compacted(stores)
    (view,) = Directory(str(tmp_path)).views()
    assert any(block.generation for block in view.blocks), "none was rewritten"
    found += [s for one in half_read for batch in one for s in batch.column("seq").to_pylist()]
    assert len(set(found)) == len(found), "a row came twice"
    assert set(seqs(store)) <= set(found)


def test_retention_between_planning_and_reading(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    strict, lenient = reader(tmp_path), reader(tmp_path, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    parts = strict.partitions(start, end)
    store.compact(1500)
    compacted(stores)
    with pytest.raises(DataLoss, match="removed between planning and reading"):
        list(strict.read(parts[0]))
    with pytest.raises(DataLoss, match=r"begins at 1500; 1 was to be read next"):
        strict.partitions(start, end)
    assert seqs_of(lenient, start, end) == list(range(1500, COUNT + 1))


@pytest.mark.parametrize("count", [100, 3000], ids=["with fewer", "with more"])
def test_a_stream_made_anew_is_not_the_one_of_before(
    tmp_path: Path, stores: FileStores, store: StreamStore, count: int
) -> None:
    source = reader(tmp_path)
    offset = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    store = made_anew(stores, count)
    for strict in (source, reader(tmp_path)):
        with pytest.raises(DataLoss, match="it was deleted and made anew"):
            strict.latestOffset(through_json(offset), ReadAllAvailable())
    lenient = reader(tmp_path, failOnDataLoss="false")
    end = lenient.latestOffset(through_json(offset), ReadAllAvailable())
    assert seqs_of(lenient, through_json(offset), through_json(end)) == seqs(store)
    fill(store, 10)
    settled(stores)
    more = reader(tmp_path).latestOffset(through_json(end), ReadAllAvailable())
    assert seqs_of(reader(tmp_path), end, more) == list(range(count + 1, count + 11))


def test_a_stream_that_was_deleted_with_a_batch_planned(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    strict, lenient = reader(tmp_path), reader(tmp_path, failOnDataLoss="false")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ReadAllAvailable())
    parts = strict.partitions(start, end)
    made_anew(stores, 3000)
    with pytest.raises(DataLoss, match="removed between planning and reading"):
        list(strict.read(parts[0]))
    with pytest.raises(DataLoss, match=r"stream \$G/S was deleted"):
        strict.partitions(start, end)
    assert seqs_of(lenient, start, end) == []
    assert [batch for part in parts for batch in lenient.read(part)] == []


def test_offsets_of_before_have_no_identity(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    end = reader(tmp_path).latestOffset({"$G/S": 1990}, ReadAllAvailable())
    assert seqs_of(reader(tmp_path), {"$G/S": 1990}, end) == list(range(1990, COUNT + 1))
    assert end["$G/S"] == COUNT + 1
    assert len(end) == 2


def test_through_spark(spark: Any, tmp_path: Path, stores: FileStores, store: StreamStore) -> None:
    first = drain(spark, tmp_path, tmp_path / "checkpoint")
    assert [seq for batch in first for seq in batch] == seqs(store)
    store = made_anew(stores, 3000)
    with pytest.raises(Exception, match="it was deleted and made anew"):
        drain(spark, tmp_path, tmp_path / "checkpoint")
    more = drain(spark, tmp_path, tmp_path / "checkpoint", failOnDataLoss="false")
    assert [seq for batch in more for seq in batch] == seqs(store)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_skip_of_many_sequences_is_not_many_batches(
    tmp_path: Path, stores: FileStores, store: StreamStore, sealed: bool
) -> None:
    store.skip(1_000_000_000)
    fill(store, 20)
    store.skip(1_000_000)
    fill(store, 20 + sealed * COUNT)
    settled(stores)
    offset, sizes, taken = reader(tmp_path).initialOffset(), [], []
    limits = {"maxOffsetsPerTrigger": "30", "maxBytesPerTrigger": "2000000"}
    for _ in range(2 * store.messages // 30 + 10):
        source = reader(tmp_path, **limits)
        end = source.latestOffset(through_json(offset), source.getDefaultReadLimit())
        if end == offset:
            break
        found = seqs_of(source, through_json(offset), through_json(end))
        sizes.append(len(found))
        taken += found
        offset = end
    assert taken == seqs(store)
    assert max(sizes) <= 30


def lagging(path: Path) -> Path:
    """A copy of the directory as it is now."""
    copy = path.parent / f"{path.name}-copy"
    shutil.copytree(path, copy)
    return copy


def test_a_copy_that_lags_behind_is_waited_for(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    """Offsets from the live directory, and then a copy of before: the same stream, only shorter."""
    copy = lagging(tmp_path)
    fill(store, 500)
    settled(stores)
    source = reader(tmp_path)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    for loss in ("true", "false"):
        late = reader(copy, failOnDataLoss=loss)
        assert late.latestOffset(through_json(end), ReadAllAvailable()) == end
        assert seqs_of(late, end, end) == []
    with pytest.raises(DataLoss, match=rf"ends at {COUNT}; a batch up to {COUNT + 500}"):
        reader(copy).partitions(through_json(start), through_json(end))
    tables = tmp_path / "out"
    export.to_parquet(parsed(tmp_path), str(tables), print)
    for loss in ("true", "false"):
        assert export.to_parquet(parsed(copy, failOnDataLoss=loss), str(tables), print) == 0
    fill(store, 10)
    settled(stores)
    assert export.to_parquet(parsed(tmp_path), str(tables), print) == 10


def test_an_offset_of_the_future_is_waited_for(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    tables, begin = str(tmp_path / "out"), COUNT + 20
    source = StreamReader(parsed(tmp_path, columns="seq", startingOffsets=str(begin)))
    offset, taken, rows = source.initialOffset(), [], []
    for _ in range(4):
        end = source.latestOffset(through_json(offset), ReadAllAvailable())
        taken += seqs_of(source, through_json(offset), through_json(end))
        offset = end
        rows.append(export.to_parquet(parsed(tmp_path, startingOffsets=str(begin)), tables, print))
        fill(store, 9)
        settled(stores)
    assert taken == list(range(begin, COUNT + 28))
    assert rows == [0, 0, 0, 8]


LIMITS = [
    {"maxOffsetsPerTrigger": "50"},
    {"maxBytesPerTrigger": "8000"},
    {"maxBlocksPerTrigger": "1"},
    {"maxOffsetsPerTrigger": "2"},
]


@pytest.mark.parametrize("limits", LIMITS, ids=lambda limits: "=".join(*limits.items()))
def test_a_limit_is_shared_by_all_streams(
    tmp_path: Path, stores: FileStores, store: StreamStore, limits: dict[str, str]
) -> None:
    """The first by name has more than its part all the time; the others go on nevertheless."""
    others = {f"$G/T{at}": stores.create(settings(f"T{at}")) for at in range(4)}
    for other in others.values():
        fill(other, 40)
    settled(stores)
    source = reader(tmp_path, **limits)
    offset, taken = source.initialOffset(), []
    for _ in range(400):
        if all(offset[name] > 10 for name in others):
            break
        fill(store, 50)
        settled(stores)
        end = source.latestOffset(through_json(offset), source.getDefaultReadLimit())
        found = seqs_of(source, through_json(offset), through_json(end))
        assert 0 < len(found) <= int(limits.get("maxOffsetsPerTrigger", "5000"))
        taken += found
        offset = end
    assert all(offset[name] > 10 for name in others), offset
    assert offset["$G/S"] > 2


def test_a_sparse_block_that_went_or_does_not_hold_is_told_by_its_reader(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    """Counting its messages is no place to fail."""
    store.skip(1_000_000_000)
    fill(store, 20)
    settled(stores)
    source = reader(tmp_path)
    (view,) = source._views().values()
    block = next(one for one in view.blocks if one.last_seq > COUNT + 1_000_000)
    gone = replace(block, location=f"{block.location}.gone")
    assert end_of_messages(view, gone, block.first_seq, 3) == (block.last_seq, block.messages)
    damaged = tmp_path / Path(block.location).name
    damaged.write_bytes(b"x" * 4096)
    other = replace(block, location=str(damaged))
    assert end_of_messages(view, other, block.first_seq, 3) == (block.last_seq, block.messages)


def test_what_planning_leaves_out_is_told(
    tmp_path: Path, stores: FileStores, store: StreamStore, capfd: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    source = reader(tmp_path, failOnDataLoss="false", leftOutFolder=str(notes))
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    store.compact(1500)
    compacted(stores)
    assert seqs_of(source, start, end) == list(range(1500, COUNT + 1))
    asked = parsed(tmp_path, startingOffsets="7", failOnDataLoss="false", columns="seq")
    list(BatchReader(asked).partitions())
    said = capfd.readouterr().err
    assert "stream $G/S begins at 1500; 1 was to be read next" in said
    assert "stream $G/S begins at 1500, not at 7" in said
    tally = Tally()
    left_out.take(notes, tally)
    assert (tally.lost, tally.damaged) == (1, 0)
    tally = Tally()
    rows = reading.read_table(asked, tally)
    assert (rows.num_rows, tally.lost) == (COUNT - 1499, 1)
    assert "1 ranges that were gone before" in tally.words()
    tables, tally = str(tmp_path / "out"), Tally()
    export.to_parquet(asked, tables, print, tally)
    assert tally.notes == ["stream $G/S begins at 1500, not at 7"]


def test_what_never_came_to_the_archive_is_told(
    tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    target = tmp_path / "archive"
    Uploader(str(tmp_path), str(target)).run()
    source = reader(target)
    behind = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    fill(store, 3 * COUNT)
    store.compact(3 * COUNT)
    settle(stores)
    Uploader(str(tmp_path), str(target)).run()
    words = f"goes on at {3 * COUNT}, not at {behind['$G/S']}: its limits"
    end = source.latestOffset(behind, ReadAllAvailable())
    with pytest.raises(DataLoss, match=words):
        source.partitions(behind, end)
    on = {"$G/S": 3 * COUNT}
    assert seqs_of(source, on, end)[0] == 3 * COUNT


def test_options_of_the_other_kind_are_refused(
    spark: Any, tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    batch = spark.read.format("jetstream")
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "maxBlocksPerTrigger"):
        with pytest.raises(Exception, match=f"option {name} is for readStream"):
            batch.options(**{name: "5"}).load(str(tmp_path)).count()
        batch = spark.read.format("jetstream")
    with pytest.raises(Exception, match="option endingOffsets is for batches"):
        drain(spark, tmp_path, tmp_path / "checkpoint", endingOffsets="5")
    for said in ("-2", '{"S": -2}', '{"S": {"0": -2}}', "earliest"):
        with pytest.raises(OptionError, match="would read nothing"):
            parsed(tmp_path, endingOffsets=said)
