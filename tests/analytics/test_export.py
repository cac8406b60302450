"""Exports: each row exactly once, in whatever order runs, writes and kills come."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from pyspark_jetstream import export, tables
from pyspark_jetstream.errors import DataLoss, JetStreamError
from pyspark_jetstream.follow import Follower, Step
from pyspark_jetstream.plan import Piece
from pyspark_jetstream.scan import Tally
from storage._store import StreamStore
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, live, parsed, settings, settle
from tests.e2e.server import die_with_parent

DAY_NS = 86_400_000_000_000
START_NS = 1_700_000_000_000_000_000


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[FileStores]:
    made = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    yield made
    made.close()


def fill(store: StreamStore, count: int, step_ns: int = DAY_NS // 500) -> None:
    for _ in range(count):
        at = store.last_seq + 1
        headers = b"NATS/1.0\r\nNats-Msg-Id: m%d\r\n\r\n" % at if at % 2 else b""
        store.store(f"a.{at % 7}", headers, b"p%d" % at, START_NS + at * step_ns)


def silent(words: str) -> None:
    pass


def exported(root: Path) -> list[tuple[str, int, bytes]]:
    """What anybody finds with a plain glob of the Parquet files."""
    table = ds.dataset(root / "messages", partitioning="hive").to_table()
    names = ("subject", "seq", "payload")
    columns = (table.column(name).to_pylist() for name in names)
    return sorted(zip(*columns, strict=True), key=lambda row: row[1])


def wanted(store: StreamStore) -> list[tuple[str, int, bytes]]:
    return [(subject, seq, payload) for seq, subject, _, _, payload in live(store)]


def test_parquet_by_stream_and_day(tmp_path: Path, stores: FileStores) -> None:
    store = stores.create(settings("ORDERS"))
    fill(store, 1200)
    settle(stores)
    root = tmp_path / "out"
    assert export.to_parquet(parsed(tmp_path), str(root), silent) == 1200
    days = {path.parent.name for path in root.glob("messages/*/stream=ORDERS/*/*.parquet")}
    assert {"day=2023-11-14", "day=2023-11-15", "day=2023-11-16"} <= days
    assert export.to_parquet(parsed(tmp_path), str(root), silent) == 0
    fill(store, 100)
    store.delete(1250)
    settle(stores)
    assert export.to_parquet(parsed(tmp_path), str(root), silent) == 99
    assert exported(root) == wanted(store)


def test_small_files_become_large_ones(tmp_path: Path, stores: FileStores) -> None:
    store = stores.create(settings("S"))
    root = tmp_path / "out"
    for _ in range(tables.FILES_OF_A_SIZE_MAX + 2):
        fill(store, 20, step_ns=1000)
        settle(stores)
        export.to_parquet(parsed(tmp_path), str(root), silent)
    assert len(list(root.glob("messages/*/*/*/*.parquet"))) <= 2
    assert exported(root) == wanted(store)


@pytest.mark.parametrize("times", [1, tables.FILES_OF_A_SIZE_MAX + 1])
def test_numbers_that_grow_are_kept_as_differences(
    tmp_path: Path, stores: FileStores, times: int
) -> None:
    """Of an export, and of a merge; everything else begins with a dictionary."""
    store, root = stores.create(settings("S")), tmp_path / "out"
    for _ in range(times):
        fill(store, 20, step_ns=1000)
        settle(stores)
        export.to_parquet(parsed(tmp_path), str(root), silent)
    (path,) = root.glob("messages/*/*/*/*.parquet")
    group = pq.read_metadata(path).row_group(0)
    kept = {column.path_in_schema: column.encodings for column in map(group.column, range(9))}
    differences = {name for name, encodings in kept.items() if "DELTA_BINARY_PACKED" in encodings}
    assert differences == {*tables.GROWING}
    dictionaries = {name for name, encodings in kept.items() if "RLE_DICTIONARY" in encodings}
    assert dictionaries == {*kept} - differences
    assert {*tables.HEADER_LEAVES} < dictionaries


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("seed", range(6))
def test_each_row_once_whatever_step_is_the_last(
    tmp_path: Path, stores: FileStores, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    store = stores.create(settings("S"))
    root = tmp_path / "out"
    real = Path.rename
    countdown = 0

    def rename(self: Path, target: Path) -> Path:
        nonlocal countdown
        countdown -= 1
        if countdown == 0:
            raise Killed
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    for _ in range(12):
        fill(store, rng.randint(1, 80))
        settle(stores)
        countdown = rng.randint(1, 9)
        with suppress(Killed):
            export.to_parquet(parsed(tmp_path), str(root), silent)
    countdown = 0
    export.to_parquet(parsed(tmp_path), str(root), silent)
    assert exported(root) == wanted(store)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "pyspark_jetstream.cli", *words]


def test_kill_9_of_the_command(tmp_path: Path, stores: FileStores) -> None:
    store = stores.create(settings("S"))
    fill(store, 3000, step_ns=DAY_NS // 50)
    settle(stores)
    root, rng = tmp_path / "out", random.Random(1)
    words = command("export", "parquet", "--data", str(tmp_path), "--out", str(root))
    for _ in range(4):
        fill(store, 50)
        settle(stores)
        process = subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        time.sleep(rng.uniform(0.2, 1.5))  # anywhere in its life
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert exported(root) == wanted(store)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_lakehouse_tables(tmp_path: Path, stores: FileStores, kind: str) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    store = stores.create(settings("S"))
    place, sink = str(tmp_path / "lake"), export.SINKS[kind]
    for count in (200, 0, 30):
        fill(store, count)
        settle(stores)
        assert sink(parsed(tmp_path), place, silent, None) == count
    rows = read_lake(kind, place)
    assert sorted(rows.column("seq").to_pylist()) == [seq for seq, *_ in live(store)]
    ids = dict(zip(rows.column("seq").to_pylist(), rows.column("msg_id").to_pylist(), strict=True))
    assert (ids[1], ids[2]) == ("m1", None)


def read_lake(kind: str, place: str) -> Any:
    if kind == "delta":
        import deltalake

        return deltalake.DeltaTable(place).to_pyarrow_table()
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(
        "martlet", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}"
    )
    try:
        return catalog.load_table("jetstream.messages").scan().to_arrow()
    finally:
        catalog.engine.dispose()


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_second_writer_is_told_so(
    tmp_path: Path, stores: FileStores, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another export runs from offsets to commit while one has read its rows."""
    if kind != "parquet":
        pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    store = stores.create(settings("S"))
    place, sink = str(tmp_path / "lake"), export.SINKS[kind]
    fill(store, 50)
    settle(stores)
    sink(parsed(tmp_path), place, silent, None)
    fill(store, 100)
    settle(stores)
    real, said = Follower.batches, []

    def slow(self: Follower, step: Step) -> Iterator[tuple[Piece, pa.RecordBatch]]:
        yield from real(self, step)
        if not said:
            said.append("")
            try:
                sink(parsed(tmp_path), place, silent, None)
            except JetStreamError as error:
                said.append(str(error))

    monkeypatch.setattr(Follower, "batches", slow)
    try:
        sink(parsed(tmp_path), place, silent, None)
    except JetStreamError as error:
        said.append(str(error))
    assert "is being written by another process" in "".join(said)
    monkeypatch.setattr(Follower, "batches", real)
    sink(parsed(tmp_path), place, silent, None)
    assert seqs_in(kind, place) == list(range(1, 151))


def seqs_in(kind: str, place: str) -> list[int]:
    if kind == "parquet":
        return [seq for _, seq, _ in exported(Path(place))]
    found: list[int] = sorted(read_lake(kind, place).column("seq").to_pylist())
    return found


def test_iceberg_offsets_outlive_other_peoples_snapshots(
    tmp_path: Path, stores: FileStores
) -> None:
    """A table that others rewrote, and whose old snapshots expired, is not filled once more."""
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    store, place = stores.create(settings("S")), str(tmp_path / "lake")
    fill(store, 100)
    settle(stores)
    export.to_iceberg(parsed(tmp_path), place, silent, None)
    catalog = sql.SqlCatalog(
        "martlet", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}"
    )
    table = catalog.load_table("jetstream.messages")
    table.overwrite(table.scan().to_arrow())
    table.refresh()
    newest = table.current_snapshot().snapshot_id
    for snapshot in table.snapshots():
        if snapshot.snapshot_id != newest:
            table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    catalog.close()
    fill(store, 10)
    settle(stores)
    assert export.to_iceberg(parsed(tmp_path), place, silent, None) == 10
    assert seqs_in("iceberg", place) == list(range(1, 111))


def test_options_start_a_table_and_do_not_change_it_later(
    tmp_path: Path, stores: FileStores
) -> None:
    store, root = stores.create(settings("S")), tmp_path / "out"
    fill(store, 100)
    settle(stores)
    for _ in range(2):
        export.to_parquet(parsed(tmp_path, startingOffsets="latest"), str(root), silent)
    fill(store, 10)
    later = stores.create(settings("LATER"))
    fill(later, 5)
    settle(stores)
    export.to_parquet(parsed(tmp_path, startingOffsets="latest"), str(root), silent)
    assert seqs_in("parquet", str(root)) == [1, 2, 3, 4, 5, *range(101, 111)]
    store.compact(50)
    settle(stores)
    with pytest.raises(DataLoss, match="begins at 50, not at 20"):
        export.to_parquet(parsed(tmp_path, startingOffsets="20"), str(tmp_path / "new"), silent)


def test_what_is_gone_from_an_emptied_stream_is_told(tmp_path: Path, stores: FileStores) -> None:
    store, root = stores.create(settings("S")), str(tmp_path / "out")
    fill(store, 100)
    settle(stores)
    assert export.to_parquet(parsed(tmp_path), root, silent) == 100
    fill(store, 50)
    store.purge()
    settle(stores)
    with pytest.raises(DataLoss, match="begins at 151; 101 was to be read next"):
        export.to_parquet(parsed(tmp_path), root, silent)
    tally, asked = Tally(), parsed(tmp_path, failOnDataLoss="false")
    for _ in range(2):
        assert export.to_parquet(asked, root, silent, tally) == 0
    assert tally.lost == 1
    fill(store, 5)
    settle(stores)
    assert export.to_parquet(parsed(tmp_path), root, silent) == 5


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_stream_made_anew_is_told_and_then_taken_whole(
    tmp_path: Path, stores: FileStores, kind: str
) -> None:
    if kind != "parquet":
        pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    store = stores.create(settings("S"))
    place, sink = str(tmp_path / "lake"), export.SINKS[kind]
    fill(store, 100)
    settle(stores)
    assert sink(parsed(tmp_path), place, silent, None) == 100
    stores.delete(store)
    store = stores.create(settings("S"))
    fill(store, 150)  # more than there were: its sequences alone do not tell
    settle(stores)
    with pytest.raises(DataLoss, match="was deleted and made anew"):
        sink(parsed(tmp_path), place, silent, None)
    assert sink(parsed(tmp_path, failOnDataLoss="false"), place, silent, None) == 150
    fill(store, 5)
    settle(stores)
    assert sink(parsed(tmp_path), place, silent, None) == 5
