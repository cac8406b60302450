"""`python -m bench.analytics`: how fast blocks are read, in one core and through Spark.

2,000,000 messages of 128 bytes with 20-byte subjects, headers on every tenth. Prints one JSON line
per row; the best of three after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.loads import generate, request
from bench.programs import MARTLET
from pyspark_jetstream import columns, launcher, options, reading, scan
from storage.filestore import FileStores

COUNT = 2_000_000
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 1234567890\r\n\r\n"

Row = dict[str, Any]


def fill(path: Path, count: int) -> int:
    """The bytes of the blocks."""
    stores = FileStores(path / "data", durable=False)
    config = json.dumps({"name": "BENCH"})
    store = stores.create({"account": "$G", "created_ns": 1, "config": config})
    payload = b"x" * 128
    for first in range(0, count, 10_000):
        for at in range(first, first + 10_000):
            headers = b"" if at % 10 else HEADERS
            subject = f"sensors.{at % 1000:05d}.temp1"
            store.store(subject, headers, payload, START_NS + at * STEP_NS)
        stores.commit()
        stores.poll()
    stores.close()
    return sum(file.stat().st_size for file in path.rglob("*.blk"))


def best(work: Callable[[], object], times: int = 3) -> float:
    work()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


def row(name: str, value: float, unit: str, goal: str, **more: object) -> Row:
    return {"row": name, "martlet": round(value, 4), "unit": unit, "goal": goal, **more}


def decode(path: Path, count: int) -> Iterator[Row]:
    """One core, no Spark: blocks read from the page cache, checked, made into Arrow batches."""

    def read(names: str) -> int:
        asked = options.parse({"path": str(path), "columns": names})
        pieces = reading.plan_batch(reading.open_store(asked), asked)
        batches = scan.read_pieces(pieces, reading.scan_of(asked))
        rows = sum(int(batch.num_rows) for batch in batches)
        assert rows == count
        return rows

    for name, names, goal in (
        ("analytics_decode", "subject,seq,ts_ns,payload", ">= 8e6"),
        ("analytics_decode_narrow", "seq,ts_ns", ""),
        ("analytics_decode_all", ",".join(c.name for c in (*columns.NATIVE, columns.HEADERS)), ""),
    ):
        seconds = best(lambda names=names: read(names))  # type: ignore[misc]
        yield row(name, count / seconds, "rows/s", goal)


def pruning(path: Path, count: int, size: int) -> Iterator[Row]:
    ms = (START_NS + count // 2 * STEP_NS) // 1_000_000
    asked = options.parse(
        {
            "path": str(path),
            "startingTimestamp": str(ms),
            "endingTimestamp": str(ms + count // 100),
        }
    )
    tally = scan.Tally()
    rows = reading.read_table(asked, tally).num_rows
    share = tally.bytes_read / size
    yield row("analytics_time_range", share, "of the bytes", "<= 0.02 + 1 block", rows=rows)


def through_spark(path: Path, count: int, cores: int) -> Iterator[Row]:
    spark = launcher.session(launcher.find_java(), master=f"local[{cores}]", memory="2g")

    def total(frame: Any) -> None:
        (found,) = frame.selectExpr("sum(seq)", "sum(length(payload))").collect()
        assert found[0] == count * (count + 1) // 2

    def source() -> None:
        total(spark.read.format("jetstream").load(str(path)))

    def narrow() -> None:
        frame = spark.read.format("jetstream").schema("seq bigint, payload binary")
        total(frame.load(str(path)))

    def full(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    yield row("spark_source", count / best(source), "rows/s", ">= 2e6", cores=cores)
    yield row("spark_source_narrow", count / best(narrow), "rows/s", "", cores=cores)
    ours = best(lambda: full(spark.read.format("jetstream").load(str(path))))
    table = str(path / "parquet")
    spark.read.format("jetstream").load(str(path)).write.option("compression", "zstd").parquet(
        table
    )
    theirs = best(lambda: full(spark.read.parquet(table)))
    yield row("spark_full_scan", count / ours, "rows/s", "")
    yield row("spark_full_scan_parquet", count / theirs, "rows/s", "")
    yield row("spark_full_scan_ratio", ours / theirs, "x the time of Parquet", "<= 1.2")
    spark.stop()


def beside(seconds: float) -> Iterator[Row]:
    """A live server's publish latency, 64 in flight, durable; without and with an export beside."""
    with tempfile.TemporaryDirectory(prefix="martlet-bench-js-") as folder:
        config = Path(folder, "server.conf")
        config.write_text(f"jetstream {{ store_dir: '{folder}' }}\n")
        with MARTLET.running(["-c", str(config)]) as server:
            stream = json.dumps({"name": "B", "subjects": ["bench.js"], "storage": "file"})
            request(server.port, "$JS.API.STREAM.CREATE.B", stream.encode())

            def p99_us() -> float:
                load = {"in_flight": 64, "size": 128, "seconds": seconds, "warmup": 0.5}
                return float(generate(server, "acked", **load)["p99_us"])

            quiet = min(p99_us() for _ in range(3))
            words = [str(MARTLET.executable), "export", "parquet", "--data", folder]
            words += ["--out", f"{folder}/tables", "--every", "5"]
            with subprocess.Popen(words, stdout=subprocess.DEVNULL) as job:
                found = max(p99_us() for _ in range(3))  # a run of the export may miss a round
                job.terminate()
    yield row("analytics_beside_p99", found / quiet, "x the quiet p99", "<= 1.1",
              quiet_us=quiet, beside_us=found)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.analytics", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--cores", type=int, default=2, help="Spark's tasks at once")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--beside", action="store_true", help="only the live server's latency")
    parser.add_argument("--keep", type=Path, help="a folder for the data, used again when filled")
    arguments = parser.parse_args()
    if arguments.beside:
        for one in beside(seconds=2.0):
            print(json.dumps(one), flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="martlet-bench-") as folder:
        path = arguments.keep or Path(folder)
        if not (path / "data" / "directory").exists():
            fill(path, arguments.count)
        size = sum(file.stat().st_size for file in path.rglob("*.blk"))
        found = [decode(path, arguments.count), pruning(path, arguments.count, size)]
        if not arguments.no_spark:
            found.append(through_spark(path, arguments.count, arguments.cores))
        for rows in found:
            for one in rows:
                print(json.dumps(one), flush=True)


if __name__ == "__main__":
    main()
