"""The Parquet tables as others find them: odd names, a commit cut short, a merge under a reader."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_jetstream import cli, export, job, reports, tables
from pyspark_jetstream.errors import JetStreamError
from pyspark_jetstream.tables import (
    Tables,
    check_tables,
    files_now,
    held_files,
    partition_of,
    partition_path,
)
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle
from tests.analytics.test_export import DAY_NS, Killed, exported, fill, silent

NAMES = ("007", "A%2FB", "k=v", "Zähler", "鳥")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[FileStores]:
    made = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    yield made
    made.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_path_tells_the_name(name: str) -> None:
    path = partition_path("$G", name, "2026-11-18")
    assert partition_of(f"{path}/x.parquet") == {
        "account": "$G",
        "stream": name,
        "day": "2026-11-18",
    }


def test_names_through_spark(spark: Any, tmp_path: Path, stores: FileStores) -> None:
    root = tmp_path / "out"
    for at, name in enumerate(NAMES):
        fill(stores.create(settings(name)), at + 1)
    settle(stores)
    export.to_parquet(parsed(tmp_path), str(root), silent)
    job.show_tables(spark, files_now(root))
    query = "SELECT stream, count(*) AS n, max(day) AS day FROM messages GROUP BY stream"
    found = {row.stream: (row.n, str(row.day)) for row in spark.sql(query).collect()}
    assert found == {name: (at + 1, "2023-11-14") for at, name in enumerate(NAMES)}
    glob = spark.read.parquet(str(root / "messages"))
    assert {row.stream for row in glob.select("stream").distinct().collect()} == set(NAMES)
    assert glob.count() == sum(range(1, len(NAMES) + 1))


def cut_short(root: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """A merge that is decided, and dies at its first move or removal."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    with Tables(str(root)) as writer, pytest.raises(Killed), monkeypatch.context() as patch:
        entries = [entry for entry in writer.state.files if entry.path.startswith("messages/")]
        if at == "move":
            patch.setattr(Tables, "_carry_out", die)
        else:
            patch.setattr(Path, "unlink", die)
        writer._merge(str(Path(entries[0].path).parent), entries)


@pytest.mark.parametrize("at", ["move", "removal"])
def test_readers_see_a_commit_that_is_decided(
    spark: Any, tmp_path: Path, stores: FileStores, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, root = stores.create(settings("S")), tmp_path / "out"
    for _ in range(3):
        fill(store, 20, step_ns=1000)
        settle(stores)
        export.to_parquet(parsed(tmp_path), str(root), silent)
    cut_short(root, monkeypatch, at)
    assert (root / "_martlet" / "commit.json").exists()
    assert [pq.read_metadata(place).num_rows for place in files_now(root).values()] == [60]
    assert reports.make(root, reports.Asked(), now_s=0).messages == 60
    job.show_tables(spark, files_now(root))
    (row,) = spark.sql("SELECT count(*), count(DISTINCT seq), min(stream) FROM messages").collect()
    assert tuple(row) == (60, 60, "S")
    with Tables(str(root)):
        pass
    assert [seq for _, seq, _ in exported(root)] == list(range(1, 61))


def test_a_report_while_files_are_merged(
    tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, root = stores.create(settings("S")), tmp_path / "out"
    for _ in range(3):
        fill(store, 20, step_ns=1000)
        settle(stores)
        export.to_parquet(parsed(tmp_path), str(root), silent)
    real, merged = reports.span_of, []

    def span_of(found: reports.Tables) -> tuple[int, int]:
        span = real(found)
        if not merged:
            with Tables(str(root)) as writer:
                writer._merge(str(Path(writer.state.files[0].path).parent), writer.state.files)
            merged.append(1)
        return span

    monkeypatch.setattr(reports, "span_of", span_of)
    assert reports.make(root, reports.Asked(), now_s=0).messages == 60


def test_a_full_disk_is_told_and_costs_nothing(
    tmp_path: Path,
    stores: FileStores,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, root = stores.create(settings("S")), tmp_path / "out"
    fill(store, 50)
    settle(stores)
    words = ["export", "parquet", "--data", str(tmp_path), "--out", str(root)]
    assert cli.main(words) == 0
    fill(store, 50)
    settle(stores)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pyspark_jetstream.modest.os.write", full)
        assert cli.main(words) == 1
    assert "martlet export: No space left on device" in capsys.readouterr().err
    assert len(exported(root)) == 50
    assert cli.main(words) == 0
    assert [seq for _, seq, _ in exported(root)] == list(range(1, 101))
    shutil.rmtree(root)


def three_exports(path: Path, stores: FileStores) -> Path:
    store, root = stores.create(settings("S")), path / "out"
    for _ in range(3):
        fill(store, 20, step_ns=1000)
        settle(stores)
        export.to_parquet(parsed(path), str(root), silent)
    return root


def merge_all(root: Path) -> None:
    with Tables(str(root)) as writer:
        entries = [entry for entry in writer.state.files if entry.path.startswith("messages/")]
        writer._merge(str(Path(entries[0].path).parent), entries)


def test_a_query_outlives_a_merge(spark: Any, tmp_path: Path, stores: FileStores) -> None:
    """Spark lists the files when a view is made, and opens them when its tasks run."""
    root = three_exports(tmp_path, stores)
    with held_files(root) as found:
        job.show_tables(spark, found)
        merge_all(root)
        assert len(list(root.glob("messages/*/*/*/*.parquet"))) == 1
        (row,) = spark.sql(
            "SELECT count(*), count(DISTINCT seq), min(stream) FROM messages"
        ).collect()
    assert tuple(row) == (60, 60, "S")
    assert list((root / "_martlet" / "readers").iterdir()) == []


def test_a_reader_that_was_killed_holds_nothing_for_ever(
    tmp_path: Path, stores: FileStores
) -> None:
    root = three_exports(tmp_path, stores)
    readers = root / "_martlet" / "readers"
    left = readers / "dead" / "messages"
    with held_files(root) as found:
        left.mkdir(parents=True)
        (readers / "dead.lock").touch()
        (readers / "strange.lock").mkdir()  # as one that may not be opened
        with Tables(str(root)):
            assert not left.exists(), "of a reader that is gone"
            assert all(place.exists() for place in found.values()), "of one that reads"


def test_without_links_a_query_reads_the_files_themselves(
    tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = three_exports(tmp_path, stores)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with held_files(root) as found:
            assert found == files_now(root)
    shutil.rmtree(root / "_martlet" / "readers")
    (root / "_martlet" / "readers").touch()  # as a folder that may not be written: none can be made
    with held_files(root) as found:
        assert found == files_now(root)


def test_a_commit_whose_files_are_gone_is_not_carried_out(
    tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a power cut leaves it when names of staged files were never synced."""
    root = three_exports(tmp_path, stores)
    before = (root / "_martlet" / "state.json").read_text()
    cut_short(root, monkeypatch, "move")
    shutil.rmtree(root / "_martlet" / "ready")
    for _ in range(2):
        with pytest.raises(JetStreamError, match=r"ready/.*4-0000.parquet .*neither is there"):
            Tables(str(root))
    assert (root / "_martlet" / "state.json").read_text() == before
    assert len(exported(root)) == 60


def test_files_and_their_names_are_synced_before_a_commit_is_decided(
    tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(stores.create(settings("S")), 20)
    settle(stores)
    synced: list[str] = []
    write, sync = tables.write_durably, tables.sync_folder

    def write_durably(path: Path, content: str) -> None:
        synced.append(path.name)
        write(path, content)

    def sync_folder(path: Path) -> None:
        synced.append(str(path.relative_to(tmp_path)))
        sync(path)

    monkeypatch.setattr(tables, "write_durably", write_durably)
    monkeypatch.setattr(tables, "sync_folder", sync_folder)
    export.to_parquet(parsed(tmp_path), str(tmp_path / "out"), silent)
    decided = synced[: synced.index("commit.json")]
    ready = "out/_martlet/ready"
    day = f"{ready}/{partition_path('$G', 'S', '2023-11-14')}"
    above = [str(each) for each in reversed(Path(day).parents)]
    assert decided == [*above, day]


def test_a_merge_takes_large_rows_a_few_at_a_time(tmp_path: Path) -> None:
    """A dictionary makes a small file of rows that are large in memory."""
    payload, count = b"x" * (1 << 20), 200
    files = []
    for at in range(2):
        files.append(tmp_path / f"{at}.parquet")
        rows = {"seq": range(count), "payload": [payload] * count, "size": [len(payload)] * count}
        pq.write_table(pa.table(rows), files[-1])
        assert files[-1].stat().st_size < 4 << 20
    schema = pq.read_schema(files[0])
    batches = list(tables.batches_within(files, schema))
    assert sum(batch.num_rows for batch in batches) == 2 * count
    assert max(batch.num_rows for batch in batches) == tables.MERGE_BYTES >> 20
    groups = list(tables.row_groups(batches))
    assert [group.num_rows for group in groups[:2]] == [64, 64]
    assert sum(group.num_rows for group in groups) == 2 * count
    small = pa.table({"seq": range(1000), "size": [8] * 1000})
    pq.write_table(small, files[0], row_group_size=10)
    assert len(list(tables.row_groups(tables.batches_within(files[:1], small.schema)))) == 1


def test_a_stream_of_more_days_than_descriptors(tmp_path: Path, stores: FileStores) -> None:
    store, root = stores.create(settings("SLOW")), tmp_path / "out"
    for round_ in range(2):  # the second round goes back to days whose files were closed
        for day in range(tables.OPEN_FILES_MAX + 100):
            store.store("a", b"", b"p", day * DAY_NS + round_)
    settle(stores)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held + tables.OPEN_FILES_MAX + 40, hard))
    try:
        export.to_parquet(parsed(tmp_path), str(root), silent)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [seq for _, seq, _ in exported(root)] == list(range(1, store.last_seq + 1))


def test_tables_are_in_a_local_folder(
    tmp_path: Path, stores: FileStores, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for words in ("export parquet", "export iceberg", "analytics run --engine plain --once"):
        assert cli.main([*words.split(), "--data", str(tmp_path), "--out", "s3://b/t"]) == 1
        assert "s3://b/t: the place of" in capsys.readouterr().err
    assert cli.main(["analytics", "report", "s3://b/t"]) == 1
    assert not (tmp_path / "s3:").exists()
    fill(stores.create(settings("S")), 3)
    settle(stores)
    out = f"file://{tmp_path}/out"
    assert cli.main(["export", "parquet", "--data", str(tmp_path), "--out", out]) == 0
    assert len(exported(tmp_path / "out")) == 3


def test_an_export_of_nothing_has_no_messages_rather_than_no_tables(
    tmp_path: Path, stores: FileStores
) -> None:
    with pytest.raises(JetStreamError, match="has no tables yet"):
        check_tables(tmp_path / "out")
    export.to_parquet(parsed(tmp_path), str(tmp_path / "out"), silent)
    with pytest.raises(JetStreamError, match="has no messages yet: what was exported had none"):
        check_tables(tmp_path / "out")
    stores.create(settings("EMPTY"))
    settle(stores)
    export.to_parquet(parsed(tmp_path), str(tmp_path / "out"), silent)
    assert json.loads((tmp_path / "out" / "_martlet" / "state.json").read_text())["commits"] == 1
    with pytest.raises(JetStreamError, match="has no messages yet"):
        check_tables(tmp_path / "out")
