"""`martlet analytics run`: keeps Parquet tables up to date beside a live server."""

from __future__ import annotations

import http.client
import json
import shutil
import time
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_jetstream import left_out
from pyspark_jetstream.errors import JetStreamError
from pyspark_jetstream.export import Told, for_tables, to_parquet
from pyspark_jetstream.follow import Follower
from pyspark_jetstream.options import Options
from pyspark_jetstream.scan import Tally
from pyspark_jetstream.tables import (
    COLUMNS,
    Tables,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MICRO_BATCH_BYTES = 256 << 20
MONITOR_TIMEOUT_S = 5.0
SAMPLE_SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("account", pa.string()),
        ("stream", pa.string()),
        ("consumer", pa.string()),
        ("pending", pa.int64()),
        ("ack_pending", pa.int64()),
        ("delivered_seq", pa.int64()),
        ("ack_floor_seq", pa.int64()),
    ]
)
VIEWS = {
    "messages": "subject string, seq bigint, timestamp timestamp, ts_ns bigint, payload binary, "
    "headers map<string,array<string>>, msg_id string, size int, "
    "account string, stream string, day date",
    "consumers": "time timestamp, account string, stream string, consumer string, pending bigint, "
    "ack_pending bigint, delivered_seq bigint, ack_floor_seq bigint, day date",
}
# Spark's usual ways to local files start a process for each change of a mode and each look for a
# link; that is felt by a server beside us.
FEW_PROCESSES = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
}
SPARK_SETTINGS = {
    **FEW_PROCESSES,
    # What a task is given at once, and writes as a row group.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(1 << 16),
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.shuffle.partitions": "2",
}


# -- consumers, as the server's monitoring tells them ----------------------------------------------


def consumer_samples(url: str, now_us: int) -> list[dict[str, Any]]:
    """What `/jsz` says of each consumer now."""
    try:
        with urlopen(f"{url.rstrip('/')}/jsz?consumers=true", timeout=MONITOR_TIMEOUT_S) as answer:
            found = json.load(answer)
    except (URLError, OSError, ValueError, http.client.HTTPException) as error:
        # The last: the answer was cut short, or was none of HTTP.
        raise JetStreamError(f"--monitor {url}: {error}") from error
    return [
        {
            "time": now_us,
            "account": account.get("name", ""),
            "stream": stream.get("name", ""),
            "consumer": consumer.get("name", ""),
            "pending": consumer.get("num_pending", 0),
            "ack_pending": consumer.get("num_ack_pending", 0),
            "delivered_seq": consumer.get("delivered", {}).get("stream_seq", 0),
            "ack_floor_seq": consumer.get("ack_floor", {}).get("stream_seq", 0),
        }
        for account in found.get("account_details") or []
        for stream in account.get("stream_detail") or []
        for consumer in stream.get("consumer_detail") or []
    ]


def add_samples(tables: Tables, samples: list[dict[str, Any]], day: str) -> None:
    if not samples:
        return
    path = tables.staging() / "consumers" / f"day={day}" / "part.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(samples, SAMPLE_SCHEMA), path, compression="zstd")
    tables.commit([path], {})


# -- by Spark's structured streaming ---------------------------------------------------------------


class SparkRun:
    """The tables as the sink of a streaming query.

    Spark may hand the same batch over again after a crash; a batch that the tables contain, by the
    query's id and the batch's number, is not written twice.
    """

    def __init__(
        self, spark: SparkSession, asked: Options, tables: Tables, told: Told, tally: Tally
    ) -> None:
        self._spark, self._asked, self._tables, self._told = spark, asked, tables, told
        self._tally = tally
        self._checkpoint = tables.root / "_martlet" / "spark"
        self._left_out = tables.root.absolute() / "_martlet" / "left-out"
        shutil.rmtree(self._left_out, ignore_errors=True)
        self._left_out.mkdir()
        self._forget_foreign_checkpoint()

    def _mark(self) -> dict[str, Any]:
        mark: dict[str, Any] = self._tables.state.marks.get("spark", {})
        return mark

    def _query_id(self) -> str | None:
        path = self._checkpoint / "metadata"
        return str(json.loads(path.read_text())["id"]) if path.exists() else None

    def _forget_foreign_checkpoint(self) -> None:
        """The tables know best: a checkpoint that did not lead to them is made anew."""
        mark = self._mark()
        if (
            mark.get("query") != self._query_id()
            or mark.get("offsets") != self._tables.state.offsets
        ):
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def start(self) -> StreamingQuery:
        """Reads up to what is there now."""
        from pyspark_jetstream.staged import StagedSink

        self._spark.dataSource.register(StagedSink)  # the query has a session that is a copy
        given = {
            "path": self._asked.path,
            "streams": ",".join(self._asked.streams),
            "streamsPattern": self._asked.streams_pattern,
            "subject": ",".join(self._asked.subject),
            "failOnDataLoss": str(self._asked.fail_on_data_loss).lower(),
            "encryptionKeyFile": self._asked.encryption_key_file,
            "leftOutFolder": str(self._left_out),
            "columns": COLUMNS,
            "maxBytesPerTrigger": str(self._asked.max_bytes or MICRO_BATCH_BYTES),
            "startingTimestamp": in_ms(self._asked.low_ns, -(1 << 63)),
            "endingTimestamp": in_ms(self._asked.high_ns + 1, 1 << 63),
            "startingOffsets": json.dumps(self._starting()),
        }
        options = {name: value for name, value in given.items() if value}
        rows = self._spark.readStream.format("jetstream").options(**options).load()
        writer = rows.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        return writer.trigger(availableNow=True).start()

    def _starting(self) -> dict[str, int]:
        if self._query_id() is not None:
            return self._tables.state.offsets  # the checkpoint tells
        return Follower(self._asked, self._tally).starting(self._tables.state.offsets)

    def await_end(self, query: StreamingQuery) -> None:
        """And what its tasks left out."""
        try:
            query.awaitTermination()
            failed = query.exception()
        finally:
            left_out.take(self._left_out, self._tally)
        if failed is not None:
            raise JetStreamError(str(failed))

    def _take(self, rows: DataFrame, batch: int) -> None:
        from pyspark_jetstream import staged

        mark, query = self._mark(), self._query_id()
        if mark.get("query") == query and mark.get("batch", -1) >= batch:
            return
        offsets = {**self._tables.state.offsets, **batch_offsets(self._checkpoint, batch)}
        folder = self._tables.staging()
        to_folder = rows.write.format(staged.StagedSink.name()).option("folder", str(folder))
        to_folder.mode("append").save()
        files = staged.take(folder)
        mark = {"query": query, "batch": batch, "offsets": offsets}
        self._tables.commit(files, offsets, marks={"spark": mark})
        added = sum(entry.rows for entry in self._tables.state.files[-len(files) :]) if files else 0
        self._told(f"batch {batch}: {added:,} rows")
        self._tables.compact()


def in_ms(ns: int, unlimited_ns: int) -> str:
    return "" if ns == unlimited_ns else str(ns // 1_000_000)


def batch_offsets(checkpoint: Path, batch: int) -> dict[str, int]:
    """Where a batch ends, from Spark's own write-ahead log of offsets."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    return dict(json.loads(lines[-1]))


# -- SQL over the tables ---------------------------------------------------------------------------


def show_tables(spark: SparkSession, found: Mapping[str, Path]) -> None:
    """The views `messages` and `consumers`: what is committed, whatever else lies there.

    With their types named: from folders Spark would take a stream called 007 for the number 7.
    """
    for view, kinds in VIEWS.items():
        by_base: dict[str, list[str]] = {}
        for path, place in found.items():
            if path.startswith(f"{view}/"):
                base = place.parents[len(Path(path).parts) - 2]
                by_base.setdefault(str(base), []).append(str(place))
        frames = [
            spark.read.schema(kinds).option("basePath", base).parquet(*places)
            for base, places in by_base.items()
        ]
        if frames:
            reduce(lambda one, other: one.unionByName(other), frames).createOrReplaceTempView(view)


# -- the job ---------------------------------------------------------------------------------------


def run_plain(asked: Options, root: str, told: Told, tally: Tally) -> None:
    added = to_parquet(asked, root, told, tally)
    told(f"{added:,} rows added to {root}")


def run_spark(
    asked: Options,
    root: str,
    told: Told,
    spark: SparkSession,
    every_s: float | None,
    between: Callable[[Tables], None],
    tally: Tally,
) -> None:
    """Up to now, or on and on until interrupted. `between` is called when no batch is under way."""
    with Tables(root) as tables:
        while True:
            run = SparkRun(spark, for_tables(asked), tables, told, tally)
            run.await_end(run.start())
            between(tables)
            if every_s is None:
                return
            time.sleep(every_s)
