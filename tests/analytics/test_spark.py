"""The data source in a real Spark session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage._store import StreamStore
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, live, settings, settle

BASE_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_001


def fill(store: StreamStore, first: int, count: int) -> None:
    for at in range(first, first + count):
        headers = (
            b"NATS/1.0\r\nNats-Msg-Id: m%d\r\nA: x\r\nA: y\r\n\r\n" % at if at % 3 == 0 else b""
        )
        store.store(f"a.{at % 10}.b", headers, b"p%d" % at, BASE_NS + at * STEP_NS)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[FileStores]:
    made = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    yield made
    made.close()


@pytest.fixture
def store(stores: FileStores) -> StreamStore:
    made = stores.create(settings("S"))
    fill(made, 1, 600)
    made.delete_many([5, 6, 200, 599])
    made.delete(300, erase=True)
    settle(stores)
    return made


def load(spark: Any, path: Path, **options: str) -> Any:
    return spark.read.format("jetstream").options(**options).load(str(path))


def test_a_batch_is_what_the_store_holds(spark: Any, tmp_path: Path, store: StreamStore) -> None:
    rows = load(spark, tmp_path, includeHeaders="true").orderBy("seq").collect()
    wanted = live(store)
    assert [(r.seq, r.subject, r.ts_ns, bytes(r.payload)) for r in rows] == [
        (seq, subject, ts_ns, payload) for seq, subject, ts_ns, _, payload in wanted
    ]
    assert {(r.account, r.stream) for r in rows} == {("$G", "S")}
    headers = {r.seq: r.headers for r in rows}
    assert headers[3] == {"Nats-Msg-Id": ["m3"], "A": ["x", "y"]}
    assert headers[4] is None


def test_options_choose(spark: Any, tmp_path: Path, store: StreamStore) -> None:
    def count(**options: str) -> int:
        return int(load(spark, tmp_path, **options).count())

    assert count(subject="a.3.*", streams="S") == 60
    assert count(subject="b.>") == 0
    assert count(startingOffsets="11", endingOffsets='{"S": {"0": 21}}') == 10
    assert count(minPartitions="7") == 595
    assert load(spark, tmp_path, minPartitions="7").rdd.getNumPartitions() >= 7
    middle_ms = (BASE_NS + 400 * STEP_NS) // 1_000_000 + 1
    assert count(startingTimestamp=str(middle_ms)) == 600 - 400 - 1
    deleted = load(spark, tmp_path, includeDeleted="true").where("deleted").select("seq").collect()
    assert sorted(row.seq for row in deleted) == [5, 6, 200, 599]


def test_a_schema_projects_and_kafka_names(spark: Any, tmp_path: Path, store: StreamStore) -> None:
    narrow = spark.read.format("jetstream").schema("seq bigint, size int").load(str(tmp_path))
    assert narrow.where("seq = 10").collect() == [(10, 3)]
    kafka = load(spark, tmp_path, schema="kafka", includeHeaders="true")
    row = kafka.where("offset = 9").collect()[0]
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition) == (b"a.9.b", b"p9", "S", 0)
    assert [(h.key, bytes(h.value)) for h in row.headers] == [
        ("Nats-Msg-Id", b"m9"),
        ("A", b"x"),
        ("A", b"y"),
    ]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW messages USING jetstream "
        f"OPTIONS (path '{tmp_path}', columns 'subject,msg_id')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, count(msg_id) AS ids FROM messages").collect()
    assert (row.n, row.ids) == (595, 198)


def test_columns_that_are_never_null_say_so(spark: Any, tmp_path: Path, store: StreamStore) -> None:
    frame = load(spark, tmp_path, columns="seq,payload,headers,msg_id,size,deleted")
    assert [field.name for field in frame.schema.fields if field.nullable] == ["headers", "msg_id"]
    assert frame.where("headers IS NULL AND msg_id IS NULL").count() == 595 - 198
    reader = spark.read.format("jetstream")
    strict = reader.schema("seq bigint NOT NULL, msg_id string").load(str(tmp_path))
    assert [field.nullable for field in strict.schema.fields] == [False, True]
    assert strict.count() == 595
    refused = reader.schema("seq bigint, msg_id string NOT NULL").load(str(tmp_path))
    with pytest.raises(Exception, match="column msg_id may be null: leave out NOT NULL"):
        refused.count()


def test_a_worker_does_not_collect_what_was_loaded_before() -> None:
    """Behind each task Spark's worker collects garbage; it is not to look at all of its modules."""
    work = (
        "import gc; from pyspark_jetstream import options, source; "
        "assert not list(source.read_partition(None, options.parse({'path': '/'}))); "
        "loaded = gc.get_freeze_count(); "
        "assert not list(source.read_partition(None, options.parse({'path': '/'}))); "
        "print(loaded > 10_000, gc.get_freeze_count() == loaded)"
    )
    done = subprocess.run([sys.executable, "-c", work], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


FILTERS = [
    "seq > 100 AND seq <= 110",
    "ts_ns >= 1700000000100000100",
    "timestamp < TIMESTAMP '2023-11-14 22:13:20.300000'",
    "timestamp = TIMESTAMP '2023-11-14 22:13:20.301000'",
    "subject = 'a.4.b'",
    "subject IN ('a.4.b', 'a.5.b') AND seq < 50",
    "subject LIKE 'a.7%'",
    "subject LIKE '%.8.b' OR seq = 3",
    "NOT subject = 'a.4.b'",
    "stream = 'T'",
    "size > 3 AND seq < 20",
]


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_handed_down_are_exact(
    spark: Any, tmp_path: Path, store: StreamStore, condition: str
) -> None:
    names = "subject,seq,timestamp,ts_ns,stream,size"
    pushed = load(spark, tmp_path, columns=names).where(condition)
    plain = load(spark, tmp_path, columns=names, pushFilters="false").where(condition)
    assert sorted(r.seq for r in pushed.collect()) == sorted(r.seq for r in plain.collect())


def test_wrong_options_are_refused_by_name(spark: Any, tmp_path: Path, store: StreamStore) -> None:
    wrong = {
        "did you mean subject?": {"subjects": "a"},
        "startingOffsets='soon'": {"startingOffsets": "soon"},
        "there is no column 'sequence'": {"columns": "sequence"},
        "failOnDataLoss='no'": {"failOnDataLoss": "no"},
        "column 'seq' is named twice": {"columns": "seq,seq"},
        "streams=',' names nothing": {"streams": ","},
        "startingTimestamp=2 is behind": {"startingTimestamp": "2", "endingTimestamp": "1"},
        "there is no stream 'T'; there are $G/S": {"streams": "T"},
        "startingOffsets: there is no stream 'X'": {"startingOffsets": '{"S": 1, "X": 2}'},
    }
    for words, options in wrong.items():
        with pytest.raises(Exception, match=r".") as failed:
            load(spark, tmp_path, **options).count()
        assert words in str(failed.value)


def drain(spark: Any, path: Path, checkpoint: Path, **options: str) -> list[list[int]]:
    """The sequences of each micro-batch up to what is there now."""
    batches: list[list[int]] = []
    query = (
        spark.readStream.format("jetstream")
        .options(startingOffsets="earliest", **options)
        .load(str(path))
        .writeStream.foreachBatch(
            lambda rows, _: batches.append([row.seq for row in rows.select("seq").collect()])
        )
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)
    assert query.exception() is None
    return batches


def test_streaming_takes_each_row_once_within_limits(
    spark: Any, tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    first = drain(spark, tmp_path, tmp_path / "checkpoint", maxOffsetsPerTrigger="250")
    assert [len(batch) for batch in first] == [247, 249, 99]
    fill(store, 601, 50)
    store.delete(620)
    settle(stores)
    more = drain(spark, tmp_path, tmp_path / "checkpoint", maxOffsetsPerTrigger="250")
    seen = [seq for batch in first + more for seq in batch]
    assert seen == [seq for seq, *_ in live(store)]


def test_streaming_says_when_rows_are_gone(
    spark: Any, tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    drain(spark, tmp_path, tmp_path / "checkpoint")
    fill(store, 601, 50)
    store.compact(640)
    settle(stores)
    with pytest.raises(Exception, match="601 was to be read next"):
        drain(spark, tmp_path, tmp_path / "checkpoint")
    (rows,) = drain(spark, tmp_path, tmp_path / "checkpoint", failOnDataLoss="false")
    assert rows == list(range(640, 651))


def test_a_damaged_block_is_named(
    spark: Any, tmp_path: Path, stores: FileStores, store: StreamStore
) -> None:
    wanted = {seq for seq, *_ in live(store)} - {7}
    block = min((tmp_path / "data" / "streams").glob("*/*.blk"))
    content = bytearray(block.read_bytes())
    content[content.index(b"p7")] ^= 1
    block.write_bytes(content)
    with pytest.raises(Exception, match="the checksum of the record does not hold") as failed:
        load(spark, tmp_path).collect()
    assert block.name in str(failed.value)
    assert "at byte" in str(failed.value)
    rows = load(spark, tmp_path, failOnDataLoss="false").collect()
    assert {row.seq for row in rows} == wanted
