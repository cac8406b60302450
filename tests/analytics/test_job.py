"""The sidecar job on Spark: tables exactly once, whatever is killed; SQL over them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_jetstream import export, job
from pyspark_jetstream.tables import Tables
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle
from tests.analytics.test_export import DAY_NS, START_NS, exported, fill, silent, wanted


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[FileStores]:
    made = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    yield made
    made.close()


def run(spark: Any, path: Path, root: Path) -> None:
    for name, value in job.SPARK_SETTINGS.items():
        spark.conf.set(name, value)
    job.run_spark(parsed(path, maxBytesPerTrigger="20000"), str(root), silent, spark, None,
                  lambda tables: None)  # fmt: skip


def test_tables_by_spark_and_without_are_the_same_tables(
    spark: Any, tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, root = stores.create(settings("S")), tmp_path / "out"
    fill(store, 700)
    settle(stores)
    run(spark, tmp_path, root)
    assert exported(root) == wanted(store)
    fill(store, 100)
    settle(stores)
    export.to_parquet(parsed(tmp_path), str(root), silent)
    fill(store, 100)
    store.delete(850)
    settle(stores)
    run(spark, tmp_path, root)
    assert exported(root) == wanted(store)


def test_options_mean_the_same_on_both_engines(
    spark: Any, tmp_path: Path, stores: FileStores
) -> None:
    store = stores.create(settings("S"))
    fill(store, 200)
    settle(stores)
    middle_ms = (START_NS + 150 * (DAY_NS // 500)) // 1_000_000
    for at, more in enumerate(
        (
            {"startingTimestamp": str(middle_ms)},
            {"endingTimestamp": str(middle_ms)},
            {"startingOffsets": "120"},
            {"startingOffsets": "latest"},
            {"subject": "a.3"},
        )
    ):
        plain, by_spark = tmp_path / f"plain{at}", tmp_path / f"spark{at}"
        export.to_parquet(parsed(tmp_path, **more), str(plain), silent)
        job.run_spark(
            parsed(tmp_path, **more), str(by_spark), silent, spark, None, lambda tables: None
        )
        found = exported(plain) if (plain / "messages").exists() else []
        assert found == (exported(by_spark) if (by_spark / "messages").exists() else []), more
        assert len(found) < 200
        with Tables(str(plain)) as one, Tables(str(by_spark)) as other:
            assert one.state.offsets == other.state.offsets


def test_what_a_killed_jvm_writes_later_is_not_taken(
    spark: Any, tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM of a run that was killed may end its job when the next has begun its own."""
    store, root = stores.create(settings("S")), tmp_path / "out"
    fill(store, 300)
    settle(stores)
    staging = Tables.staging

    def with_leftovers(self: Tables) -> Path:
        folder = staging(self)
        shutil.copytree(tmp_path / "killed", folder / "spark", dirs_exist_ok=True)
        return folder

    killed = tmp_path / "killed" / "account=$G" / "stream=S" / "day=2023-11-14"
    killed.mkdir(parents=True)
    pq.write_table(pa.table({"seq": [1]}), killed / "part-0.parquet")
    monkeypatch.setattr(Tables, "staging", with_leftovers)
    run(spark, tmp_path, root)
    assert exported(root) == wanted(store)


def test_a_batch_that_spark_hands_over_again_is_not_written_twice(
    spark: Any, tmp_path: Path, stores: FileStores
) -> None:
    store, root = stores.create(settings("S")), tmp_path / "out"
    fill(store, 300)
    settle(stores)
    run(spark, tmp_path, root)
    # A crash between our commit and Spark's: Spark's log of finished batches lacks the last one.
    commits = root / "_martlet" / "spark" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    fill(store, 50)
    settle(stores)
    run(spark, tmp_path, root)
    assert exported(root) == wanted(store)
    with Tables(str(root)) as tables:
        assert tables.state.offsets["$G/S"] == 351
        assert tables.state.marks["spark"]["offsets"] == tables.state.offsets
    assert json.loads((root / "_martlet" / "state.json").read_text())["version"] == 1


def test_sql_over_the_tables(spark: Any, tmp_path: Path, stores: FileStores) -> None:
    store, root = stores.create(settings("S")), tmp_path / "out"
    fill(store, 100)
    settle(stores)
    export.to_parquet(parsed(tmp_path), str(root), silent)
    spark.read.parquet(str(root / "messages")).createOrReplaceTempView("messages")
    (row,) = spark.sql(
        "SELECT count(*) AS n, count(DISTINCT day) AS days, max(size) AS size, "
        "count(headers) AS headers FROM messages WHERE stream = 'S'"
    ).collect()
    assert (row.n, row.days, row.size, row.headers) == (100, 2, 4, 50)
