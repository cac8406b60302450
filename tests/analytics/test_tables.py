"""The Parquet tables as others find them: odd names, a commit cut short, a merge under a reader."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pyspark_jetstream import cli, export, job, reports, tables
from pyspark_jetstream.tables import Tables, files_now, partition_of, partition_path
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle
from tests.analytics.test_export import Killed, exported, fill, silent

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
    job.show_tables(spark, root)
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
            patch.setattr(tables, "make_folders", die)
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
    job.show_tables(spark, root)
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
