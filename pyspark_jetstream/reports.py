"""Figures over the Parquet tables: what came, when, how large, what is missing, who lags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyspark_jetstream.duplicates import Duplicates
from pyspark_jetstream.errors import JetStreamError
from pyspark_jetstream.tables import check_tables, files_now, partition_of, patiently

NS = 1_000_000_000
BUCKETS_S = (1, 10, 60, 300, 900, 3600, 21_600, 86_400, 604_800)
BUCKETS_MAX = 200
POINTS_MAX = 20_000
LISTED = 20
PATTERNS_MAX = 8
GROUPS_MAX = 200_000
LAG_POINTS_MAX = 50_000
DEFAULT_ACCOUNT = "$G"


@dataclass(frozen=True)
class Asked:
    """What a report is about. Times are seconds since 1970."""

    streams: tuple[str, ...] = ()
    since_s: float | None = None
    until_s: float | None = None
    depth: int = 2
    bucket_s: int | None = None
    top: int = LISTED


@dataclass
class Gap:
    """Sequences that are not there: deleted, skipped, lost, or never exported."""

    stream: str
    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass
class Report:
    """Everything, ready to be shown or written as JSON."""

    made_at: str
    first_time: str | None
    last_time: str | None
    messages: int
    bytes: int
    bucket_s: int
    streams: list[dict[str, Any]] = field(default_factory=list)
    volume: list[dict[str, Any]] = field(default_factory=list)  # time, pattern, messages, bytes
    sizes: list[dict[str, Any]] = field(default_factory=list)  # up_to, messages
    size_percentiles: dict[str, int] = field(default_factory=dict)
    top_subjects: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    gap_count: int = 0
    gap_sequences: int = 0
    duplicates: list[dict[str, Any]] = field(default_factory=list)
    duplicate_ids: int = 0
    lag: list[dict[str, Any]] = field(default_factory=list)  # time, consumer, pending


def pattern_of(subject: str, depth: int) -> str:
    """`orders.eu.12.new` is `orders.eu.>` at depth 2."""
    tokens = subject.split(".")
    return subject if len(tokens) <= depth else ".".join([*tokens[:depth], ">"])


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


class Tables:
    """The files of the table that a report reads."""

    def __init__(self, root: Path, asked: Asked) -> None:
        self._asked = asked
        check_tables(root)
        found = files_now(root)
        self.files = {path: place for path, place in found.items() if self._wanted(path)}
        self.samples = [
            place
            for path, place in found.items()
            if path.startswith("consumers/") and self._is_in_time(partition_of(path))
        ]

    def _wanted(self, path: str) -> bool:
        if not path.startswith("messages/"):
            return False
        where = partition_of(path)
        names = {where["stream"], f"{where['account']}/{where['stream']}"}
        chosen = not self._asked.streams or not names.isdisjoint(self._asked.streams)
        return chosen and self._is_in_time(where)

    def _is_in_time(self, where: dict[str, str]) -> bool:
        day = datetime.fromisoformat(where["day"]).replace(tzinfo=UTC).timestamp()
        low, high = self._asked.since_s, self._asked.until_s
        return (low is None or day + 86_400 > low) and (high is None or day < high)

    def batches(self, columns: list[str]) -> Iterator[tuple[str, pa.Table]]:
        """(stream, rows) within the times asked for."""
        for path, place in self.files.items():
            where = partition_of(path)
            name = f"{where['account']}/{where['stream']}"
            with pq.ParquetFile(place) as source:
                for batch in source.iter_batches(1 << 17, columns=[*columns, "ts_ns"]):
                    yield name, self._cut(pa.Table.from_batches([batch]))

    def _cut(self, rows: pa.Table) -> pa.Table:
        low, high = self._asked.since_s, self._asked.until_s
        if low is not None:
            rows = rows.filter(pc.greater_equal(rows.column("ts_ns"), int(low * NS)))
        if high is not None:
            rows = rows.filter(pc.less(rows.column("ts_ns"), int(high * NS)))
        return rows

    def sample_rows(self) -> pa.Table | None:
        """Of the streams and times asked for."""
        tables = [self._cut_samples(pq.read_table(place, partitioning=None))
                  for place in self.samples]  # fmt: skip
        return pa.concat_tables(tables) if tables else None

    def _cut_samples(self, rows: pa.Table) -> pa.Table:
        if self._asked.streams:
            wanted = pa.array(self._asked.streams, pa.string())
            full = pc.binary_join_element_wise(rows.column("account"), rows.column("stream"), "/")
            rows = rows.filter(
                pc.or_(pc.is_in(rows.column("stream"), wanted), pc.is_in(full, wanted))
            )
        at_us = rows.column("time").cast(pa.int64())
        low, high = self._asked.since_s, self._asked.until_s
        if low is not None:
            rows = rows.filter(pc.greater_equal(at_us, int(low * 1_000_000)))
            at_us = rows.column("time").cast(pa.int64())
        return rows if high is None else rows.filter(pc.less(at_us, int(high * 1_000_000)))


class Sums:
    """Messages and bytes by group, added up batch by batch."""

    def __init__(self, keys: list[str]) -> None:
        self._keys = keys
        self._parts: list[pa.Table] = []
        self._held = 0
        self._merge_at = GROUPS_MAX

    def add(self, rows: pa.Table) -> None:
        part = rows.group_by(self._keys).aggregate([("size", "count"), ("size", "sum")])
        self._parts.append(part.rename_columns([*self._keys, "messages", "bytes"]))
        self._held += part.num_rows
        if self._held > self._merge_at:
            self._parts = [self.table()]
            self._held = self._parts[0].num_rows
            # Not with each batch, when there are more groups than that.
            self._merge_at = max(GROUPS_MAX, 2 * self._held)

    def table(self) -> pa.Table:
        whole = pa.concat_tables(self._parts)
        found = whole.group_by(self._keys).aggregate([("messages", "sum"), ("bytes", "sum")])
        return found.rename_columns([*self._keys, "messages", "bytes"])


def make(root: Path, asked: Asked, now_s: float) -> Report:
    """Also while the job adds to the tables and merges their files."""
    return patiently(lambda: made(root, asked, now_s))


def made(root: Path, asked: Asked, now_s: float) -> Report:
    """Reads the tables twice: for their span, and for everything else."""
    tables = Tables(root, asked)
    low_ns, high_ns = span_of(tables)
    bucket_s = asked.bucket_s or choose_bucket((high_ns - low_ns) / NS)
    if (high_ns - low_ns) / NS / bucket_s > POINTS_MAX:
        wider = -(-(high_ns - low_ns) // (POINTS_MAX * NS))
        raise JetStreamError(
            f"--bucket {bucket_s} makes more than {POINTS_MAX:,} points of the time from "
            f"{iso(low_ns / NS)} to {iso(high_ns / NS)}: at least {wider}, or --since and --until"
        )
    report = Report(
        made_at=iso(now_s),
        first_time=iso(low_ns / NS) if low_ns <= high_ns else None,
        last_time=iso(high_ns / NS) if low_ns <= high_ns else None,
        messages=0,
        bytes=0,
        bucket_s=bucket_s,
    )
    fill_lag(report, tables)
    if low_ns > high_ns:
        return report
    by_subject, sizes = volumes(tables, bucket_s)
    seconds = max((high_ns - low_ns) / NS, 1.0)  # of what came at once no rate can be told
    fill_volumes(report, by_subject, asked, seconds)
    fill_sizes(report, sizes)
    fill_gaps(report, tables, asked.top)
    fill_duplicates(report, tables, asked.top)
    return report


def span_of(tables: Tables) -> tuple[int, int]:
    low, high = 1 << 63, -1
    for _, rows in tables.batches([]):
        if rows.num_rows:
            found = pc.min_max(rows.column("ts_ns")).as_py()
            low, high = min(low, found["min"]), max(high, found["max"])
    return low, high


def choose_bucket(seconds: float) -> int:
    return next((size for size in BUCKETS_S if seconds / size <= BUCKETS_MAX), BUCKETS_S[-1])


def volumes(tables: Tables, bucket_s: int) -> tuple[pa.Table, Counter[int]]:
    """By stream, subject and time; and how many messages have which size."""
    sums = Sums(["stream", "subject", "time"])
    sizes: Counter[int] = Counter()
    for stream, rows in tables.batches(["subject", "size"]):
        if not rows.num_rows:
            continue
        width = bucket_s * NS
        time = pc.multiply(pc.divide(rows.column("ts_ns"), width), bucket_s)
        names = pa.array([stream], pa.string()).take(pa.array([0] * rows.num_rows, pa.int8()))
        sums.add(rows.append_column("time", time).append_column("stream", names))
        counts = pc.value_counts(rows.column("size"))
        sizes.update(dict(zip(*(part.to_pylist() for part in counts.flatten()), strict=True)))
    return sums.table(), sizes


def totals(rows: pa.Table, keys: list[str], top: int | None = None) -> list[dict[str, Any]]:
    """The largest first; only these ever become Python objects."""
    found = rows.group_by(keys).aggregate([("messages", "sum"), ("bytes", "sum")])
    found = found.rename_columns([*keys, "messages", "bytes"])
    order = pc.sort_indices(
        found, [("messages", "descending"), *((key, "ascending") for key in keys)]
    )
    named: list[dict[str, Any]] = found.take(order[:top]).to_pylist()
    return named


def fill_volumes(report: Report, rows: pa.Table, asked: Asked, seconds: float) -> None:
    report.messages = pc.sum(rows.column("messages")).as_py()
    report.bytes = pc.sum(rows.column("bytes")).as_py()
    report.streams = totals(rows, ["stream"])
    top = totals(rows, ["stream", "subject"], asked.top)
    report.top_subjects = [
        {**row, "per_second": row["messages"] / seconds, "mean": row["bytes"] / row["messages"]}
        for row in top
    ]
    patterns = patterns_of(rows.column("subject"), asked.depth)
    by_pattern = rows.append_column("pattern", patterns)
    ranked = [row["pattern"] for row in totals(by_pattern, ["pattern"])]
    kept = ranked if len(ranked) <= PATTERNS_MAX else ranked[: PATTERNS_MAX - 1]
    shown = pc.if_else(pc.is_in(patterns, pa.array(kept, pa.string())), patterns, "others")
    places = by_pattern.drop_columns(["pattern"]).append_column("pattern", shown)
    volume = totals(places, ["time", "pattern"])
    report.volume = sorted(volume, key=lambda row: (row["time"], row["pattern"]))


def patterns_of(subjects: pa.ChunkedArray, depth: int) -> pa.Array:
    """Worked out once for each subject, however many rows it has."""
    coded = subjects.combine_chunks().dictionary_encode()
    patterns = [pattern_of(subject, depth) for subject in coded.dictionary.to_pylist()]
    return pa.array(patterns, pa.string()).take(coded.indices)


def fill_sizes(report: Report, sizes: Counter[int]) -> None:
    """Powers of two for the picture, exact percentiles for the table."""
    bins: Counter[int] = Counter()
    for size, count in sizes.items():
        bins[(max(size, 1) - 1).bit_length()] += count
    if bins:
        report.sizes = [
            {"up_to": 1 << power, "messages": bins[power]}
            for power in range(min(bins), max(bins) + 1)
        ]
    total, seen = sum(sizes.values()), 0
    wanted = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    for size in sorted(sizes):
        seen += sizes[size]
        for name, share in wanted.items():
            if name not in report.size_percentiles and seen >= share * total:
                report.size_percentiles[name] = size


def sequences(tables: Tables) -> Iterator[tuple[str, list[pa.Array]]]:
    """Each stream's sequences, in about as many sorted arrays as there are batches."""
    found: dict[str, list[pa.Array]] = {}
    for stream, rows in tables.batches(["seq"]):
        if rows.num_rows:
            found.setdefault(stream, []).append(ordered(rows.column("seq").combine_chunks()))
    for stream, arrays in sorted(found.items()):
        yield stream, disjoint(arrays)


def ordered(array: pa.Array) -> pa.Array:
    return array.take(pc.sort_indices(array))


def disjoint(arrays: list[pa.Array]) -> list[pa.Array]:
    """Ascending; those whose ranges overlap, as of a stream that was made anew, are one."""
    found: list[pa.Array] = []
    for array in sorted(arrays, key=lambda array: array[0].as_py()):
        if found and array[0].as_py() <= found[-1][-1].as_py():
            found[-1] = ordered(pa.concat_arrays([found[-1], array]))
        else:
            found.append(array)
    return found


def gaps_of(stream: str, arrays: Iterable[pa.Array]) -> Iterator[Gap]:
    before: int | None = None
    for array in arrays:
        first = array[0].as_py()
        if before is not None and first > before + 1:
            yield Gap(stream, before + 1, first - 1)
        steps = pc.subtract(array[1:], array[:-1])
        for at in pc.indices_nonzero(pc.greater(steps, 1)).to_pylist():
            yield Gap(stream, array[at].as_py() + 1, array[at + 1].as_py() - 1)
        before = max(before or 0, array[-1].as_py())


def fill_gaps(report: Report, tables: Tables, top: int) -> None:
    largest: list[Gap] = []
    for stream, arrays in sequences(tables):
        for gap in gaps_of(stream, arrays):
            report.gap_count += 1
            report.gap_sequences += gap.count
            largest.append(gap)
            if len(largest) > 10 * top + 1000:
                largest = sorted(largest, key=lambda one: -one.count)[:top]
    largest = sorted(largest, key=lambda one: -one.count)[:top]
    report.gaps = [{**asdict(gap), "count": gap.count} for gap in largest]


def fill_duplicates(report: Report, tables: Tables, top: int) -> None:
    """Message ids that came more than once in a stream: beyond the server's duplicate window."""
    with Duplicates(report.messages) as found:
        for stream, rows in tables.batches(["msg_id"]):
            found.add(stream, rows)
        report.duplicate_ids, rows = found.most(top)
    report.duplicates = [
        {
            "stream": row["stream"],
            "msg_id": row["msg_id"],
            "count": row["count"],
            "first_time": iso(row["first_ns"] / NS),
        }
        for row in rows
    ]


def fill_lag(report: Report, tables: Tables) -> None:
    rows = tables.sample_rows()
    if rows is None:
        return
    for row in thinned(rows).sort_by("time").to_pylist():
        account = "" if row["account"] == DEFAULT_ACCOUNT else f"{row['account']}/"
        report.lag.append(
            {
                "time": row["time"].timestamp(),
                "consumer": f"{account}{row['stream']} > {row['consumer']}",
                "pending": row["pending"],
                "ack_pending": row["ack_pending"],
            }
        )


def thinned(samples: pa.Table) -> pa.Table:
    """As many rounds of samples as a picture needs, the last among them."""
    step = -(-samples.num_rows // LAG_POINTS_MAX)
    if step <= 1:
        return samples
    times = ordered(pc.unique(samples.column("time")))
    return samples.filter(pc.is_in(samples.column("time"), times[::-1][::step]))
