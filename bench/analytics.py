"""`python -m bench.analytics PART ...`: how fast blocks are read, and what that costs a server.

Parts: `blocks` (one core, no Spark), `spark`, and a live server's latency `beside` exports or
`beside_spark`, the job on Spark; the first two when none is named.
2,000,000 messages with 19-byte subjects; headers on every tenth. Payloads are `--payloads random`:
128 to 256 bytes that do not compress; `json`: a reading as some 130 bytes of text, each another;
`alike`: 128 bytes, the same in every message. Prints one JSON line per row, the best of a few after
a warm-up. Parquet is what Spark writes unless told otherwise (snappy, dictionaries); with `--codec`
sealed blocks are compressed, and Parquet in the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any

from bench.loads import generate, request
from bench.programs import MARTLET
from pyspark_jetstream import columns, launcher, options, reading, scan
from storage.filestore import FileStores

COUNT = 2_000_000
SMALL_COUNT = 20_000
START_NS = 1_700_000_000_000_000_000
STEP_NS = 1_000_000
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: 1234567890\r\n\r\n"

# By what the blocks have. S2 is in the words of Snappy's format.
PARQUET_CODECS = {"none": "snappy", "zstd": "zstd", "s2": "snappy"}

Row = dict[str, Any]


def payloads(kind: str) -> Iterator[bytes]:
    rng = random.Random(1)
    pool = rng.randbytes(1 << 24)
    number = 0
    while True:
        at = rng.randrange(len(pool) - 256)
        number += 1
        if kind == "random":
            yield pool[at : at + rng.randint(128, 256)]
        elif kind == "json":
            reading = {"sensor": f"sensor-{at % 1000:05d}", "reading": number, "unit": "celsius",
                       "value": round(at / 1e6, 4), "battery": at % 100, "quality": "good",
                       "site": f"hall {at % 20}"}  # fmt: skip
            yield json.dumps(reading, separators=(",", ":")).encode()
        else:
            yield b"x" * 128


def fill(path: Path, count: int, kind: str, codec: str) -> None:
    stores = FileStores(path / "data", durable=False, codec_of=lambda settings: codec)
    config = json.dumps({"name": "BENCH"})
    store = stores.create({"account": "$G", "created_ns": 1, "config": config})
    payload = payloads(kind)
    for first in range(0, count, 10_000):
        for at in range(first, first + 10_000):
            headers = b"" if at % 10 else HEADERS
            subject = f"sensors.{at % 1000:05d}.temp1"
            store.store(subject, headers, next(payload), START_NS + at * STEP_NS)
        stores.commit()
        stores.poll()
    stores.directory.wait_rewritten()
    stores.close()


class Timer:
    """The best of several runs; of one without a warm-up when only `small` is asked for."""

    def __init__(self, small: bool) -> None:
        self.small = small

    def best(self, work: Callable[[], object], times: int = 3) -> float:
        if self.small:
            return took(work)
        work()
        return min(took(work) for _ in range(times))

    def in_turn(
        self, one: Callable[[], object], other: Callable[[], object]
    ) -> tuple[float, float]:
        """Of sixteen of each, after eight for the JVM's compiler; neither has the better minute."""
        rounds, warm = (1, 0) if self.small else (24, 8)
        found = [(took(one), took(other)) for _ in range(rounds)][warm:]
        return min(pair[0] for pair in found), min(pair[1] for pair in found)


def took(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def row(name: str, value: float, unit: str, goal: str, **more: object) -> Row:
    return {"row": name, "martlet": round(value, 4), "unit": unit, "goal": goal, **more}


def decode(path: Path, count: int, timer: Timer) -> Iterator[Row]:
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
        seconds = timer.best(lambda names=names: read(names))  # type: ignore[misc]
        yield row(name, count / seconds, "rows/s", goal)


def pruning(path: Path, count: int, size: int) -> Iterator[Row]:
    """A hundredth of the time, in the middle: bytes of blocks, and what planning read besides."""
    ms = (START_NS + count // 2 * STEP_NS) // 1_000_000
    bounds = {"startingTimestamp": str(ms), "endingTimestamp": str(ms + count // 100)}
    asked = options.parse({"path": str(path), **bounds})
    before = bytes_read_by_process()
    pieces = reading.plan_batch(reading.open_store(asked), asked)
    planning = bytes_read_by_process() - before
    tally = scan.Tally()
    batches = scan.read_pieces(pieces, reading.scan_of(asked), tally)
    rows = sum(int(batch.num_rows) for batch in batches)
    yield row("analytics_time_range", tally.bytes_read / size, "of the bytes", "<= 0.02",
              rows=rows, blocks=len(pieces), planning=round(planning / size, 4))  # fmt: skip


def bytes_read_by_process() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def through_spark(path: Path, count: int, cores: int, codec: str, timer: Timer) -> Iterator[Row]:
    spark = launcher.session(launcher.find_java(), master=f"local[{cores}]", memory="2g")

    def total(frame: Any) -> None:
        (found,) = frame.selectExpr("sum(seq)", "sum(length(payload))").collect()
        assert found[0] == count * (count + 1) // 2

    def source() -> None:
        total(spark.read.format("jetstream").load(str(path)))

    def narrow() -> None:
        frame = spark.read.format("jetstream").option("columns", "seq,payload")
        total(frame.load(str(path)))

    yield row("spark_source", count / timer.best(source), "rows/s", ">= 2e6", cores=cores)
    if not timer.small:
        yield row("spark_source_narrow", count / timer.best(narrow), "rows/s", "", cores=cores)
    yield from beside_parquet(spark, path, count, codec, timer)
    if not timer.small:
        yield from floor(spark, path, count, cores, timer)
    spark.stop()


SCANS: dict[str, Callable[[Any], object]] = {
    "rows": lambda frame: frame.write.format("noop").mode("overwrite").save(),
    "hash": lambda frame: frame.selectExpr("bit_xor(xxhash64(payload))").collect(),
    "length": lambda frame: frame.selectExpr("sum(length(payload))").collect(),
}
"""Every row with every column to the noop sink; and payloads alone."""


def beside_parquet(spark: Any, path: Path, count: int, codec: str, timer: Timer) -> Iterator[Row]:
    """The same scan of blocks and of Parquet with the same rows, in turn in the same session."""
    table = path / "parquet"
    if not table.exists():
        rows = spark.read.format("jetstream").load(str(path))
        rows.write.parquet(str(table), compression=PARQUET_CODECS[codec])
        os.sync()
    sizes = [
        sum(file.stat().st_size for file in path.rglob(kind)) for kind in ("*.blk", "*.parquet")
    ]
    yield row("spark_scan_sizes", sizes[0] / sizes[1], "x the bytes of Parquet", "", codec=codec,
              blocks=sizes[0], parquet=sizes[1])  # fmt: skip
    for name, scan_all in SCANS.items():

        def ours(name: str = name, scan_all: Callable[[Any], object] = scan_all) -> None:
            reader = spark.read.format("jetstream")
            if name != "rows":
                reader = reader.option("columns", "payload")
            scan_all(reader.load(str(path)))

        def theirs(scan_all: Callable[[Any], object] = scan_all) -> None:
            scan_all(spark.read.parquet(str(table)))

        took, parquet = timer.in_turn(ours, theirs)
        yield row(f"spark_scan_{name}", count / took, "rows/s", "")
        yield row(f"spark_scan_{name}_parquet", count / parquet, "rows/s", "")
        yield row(f"spark_scan_{name}_ratio", took / parquet, "x the time of Parquet", "<= 1.2",
                  codec=codec)  # fmt: skip


def floor(spark: Any, path: Path, count: int, cores: int, timer: Timer) -> Iterator[Row]:
    """What a query costs whatever it reads, and a row whoever makes it."""
    from bench.analytics_floor import RepeatedBatch

    spark.dataSource.register(RepeatedBatch)

    def one_row() -> None:
        reader = spark.read.format("jetstream").option("endingOffsets", "2")
        assert reader.load(str(path)).selectExpr("sum(seq)").collect()[0][0] == 1

    def no_source() -> None:
        assert spark.range(1).selectExpr("sum(id)").collect()[0][0] == 0

    def scan_blocks() -> None:
        SCANS["rows"](spark.read.format("jetstream").load(str(path)))

    def boundary() -> None:
        reader = spark.read.format("repeated").options(path=str(path), rows=count, tasks=8)
        SCANS["rows"](reader.load())

    yield row("spark_job", timer.best(one_row, 8) * 1e3, "ms for one row", "",
              without_source=round(timer.best(no_source, 8) * 1e3, 1))  # fmt: skip
    boundary_took, scan_took = timer.in_turn(boundary, scan_blocks)
    yield row("spark_boundary", count / boundary_took, "rows/s", "", cores=cores,
              scan_of_blocks=round(scan_took / boundary_took, 3))  # fmt: skip


class Job:
    """A process and its children, on core 1 from its first line on, which tells of first rows."""

    def __init__(self, words: list[str]) -> None:
        words = ["taskset", "-c", "1", *words]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self.close()
            raise SystemExit(f"{words[3]} ended without a row")
        self._told_at = time.monotonic()
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def _listen(self, lines: IO[bytes]) -> None:
        for _ in lines:
            self._told_at = time.monotonic()

    def send(self, number: signal.Signals) -> None:
        if self._process.poll() is not None:
            raise SystemExit("the job ended before it was measured")
        os.killpg(self._process.pid, number)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.send(signal.SIGSTOP)
        time.sleep(0.1)  # what its workers and the disk have under way
        yield
        self.send(signal.SIGCONT)

    def must_be_at_work(self) -> None:
        if time.monotonic() - self._told_at > SILENT_S:
            raise SystemExit("the job had read everything before it was measured")

    def close(self) -> None:
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


SILENT_S = 6.0
Beside = Callable[[str, str], list[str]]
"""The words of a job that reads the first folder and writes below the second, for long enough."""


def exporting(folder: str, out: str) -> list[str]:
    """One export after the other, each from the first message on."""
    export = f"{MARTLET.executable} export parquet --data {folder} --out {out}/$n"
    return ["sh", "-c", f"n=0; while {export}; do n=$((n+1)); done"]


def running_on_spark(folder: str, out: str) -> list[str]:
    """The job on Spark from the first message on, in batches that are still to come for a while."""
    words = f"analytics run --every 0 --data {folder} --out {out}"
    return [str(MARTLET.executable), *words.split(), "--option", "maxBytesPerTrigger=32000000"]


def bring_to_memory(folder: str) -> None:
    piece = bytearray(1 << 20)
    for path in Path(folder, "jetstream").rglob("*.blk"):
        with path.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass


def beside(name: str, job_of: Beside, turns: int, small: bool) -> Iterator[Row]:
    """A live server's publish latency, durable, beside a job that runs and one that is stopped.

    In turns of a second, because a disk and a machine drift within minutes. With two cores the
    server and the generator, which is light at 2,000 messages a second, share core 0, and the job
    has core 1. What the job reads is in the page cache, as it is where a server has memory: some
    virtual machines have pages taken away after seconds, and one disk for both is another question.
    """
    seconds, turns, filling_s = (0.2, 1, 0.2) if small else (1.0, turns, 24)
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory(prefix="martlet-bench-js-") as folder:
        config = Path(folder, "server.conf")
        config.write_text(f"jetstream {{ store_dir: '{folder}' }}\n")
        with MARTLET.running(["-c", str(config)]) as server:
            stream = json.dumps({"name": "B", "subjects": ["bench.>"], "storage": "file"})
            request(server.port, "$JS.API.STREAM.CREATE.B", stream.encode())
            generate(server, "acked", in_flight=256, size=512, seconds=filling_s, warmup=0)
            os.sync()  # or the kernel writes the blocks beside some of the turns

            def p99_us() -> float:
                load = {"publishers": 20, "rate": 100, "size": 128, "acks": True}
                return float(generate(server, "paced", **load, seconds=seconds)["p99_us"])

            quiet: list[float] = []
            found: list[float] = []
            job = Job(job_of(folder, tempfile.mkdtemp(dir=folder)))
            try:
                for turn in range(turns):
                    with job.paused():
                        bring_to_memory(folder)
                    # Neither always comes right after a store was read from the disk.
                    for stopped in (True, False) if turn % 2 else (False, True):
                        with job.paused() if stopped else nullcontext():
                            (quiet if stopped else found).append(p99_us())
                job.must_be_at_work()
            finally:
                job.close()
    yield row(name, statistics.median(found) / statistics.median(quiet), "x the quiet p99",
              "<= 1.1", quiet_us=quiet, beside_us=found)  # fmt: skip


BESIDE: dict[str, tuple[str, Beside, int]] = {
    "beside": ("analytics_beside_p99", exporting, 100),
    "beside_spark": ("analytics_beside_spark_p99", running_on_spark, 50),
}
"""Name of the row, the job, and turns: as many as its work is long, for one turn tells little."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.analytics", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="blocks, spark, beside ...")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--cores", type=int, default=2, help="Spark's tasks at once")
    parser.add_argument("--payloads", choices=("random", "json", "alike"), default="random")
    parser.add_argument("--codec", choices=PARQUET_CODECS, default="none", help="of sealed blocks")
    parser.add_argument("--keep", type=Path, help="a folder for the data, used again when filled")
    parser.add_argument("--small", action="store_true", help="does each part run at all")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts or ["blocks", "spark"]
    unknown = set(arguments.parts) - {"blocks", "spark", *BESIDE}
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    if arguments.small:
        arguments.count = SMALL_COUNT
    return arguments


def over_blocks(asked: argparse.Namespace) -> Iterator[Row]:
    timer = Timer(asked.small)
    with tempfile.TemporaryDirectory(prefix="martlet-bench-") as folder:
        path = asked.keep or Path(folder)
        if not (path / "data" / "directory").exists():
            fill(path, asked.count, asked.payloads, asked.codec)
        if "blocks" in asked.parts:
            size = sum(file.stat().st_size for file in path.rglob("*.blk"))
            yield from decode(path, asked.count, timer)
            yield from pruning(path, asked.count, size)
        if "spark" in asked.parts:
            yield from through_spark(path, asked.count, asked.cores, asked.codec, timer)


def main() -> None:
    asked = parse_arguments()
    found = over_blocks(asked) if {"blocks", "spark"} & set(asked.parts) else iter(())
    besides = (beside(*BESIDE[part], asked.small) for part in asked.parts if part in BESIDE)
    for one in chain(found, *besides):
        print(json.dumps(one), flush=True)


if __name__ == "__main__":
    main()
