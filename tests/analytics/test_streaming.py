"""A streaming reader while the stream moves under it: each row once, or the loss is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage._store import StreamStore
from storage.filestore import FileStores
from tests.analytics.stores import live, parsed, settings, settle

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'martlet[spark]'")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_jetstream.directory import Directory
from pyspark_jetstream.errors import DataLoss
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
