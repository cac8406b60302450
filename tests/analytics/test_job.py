"""The sidecar job on Spark: tables exactly once, whatever is killed; SQL over them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream import export, job
from pyspark_jetstream.tables import Tables
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle
from tests.analytics.test_export import exported, fill, silent, wanted


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


class Killed(BaseException):
    """The process ends here."""


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
