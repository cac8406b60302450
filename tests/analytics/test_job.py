"""The sidecar job on Spark: tables exactly once, whatever is killed; SQL over them."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_jetstream import cli, export, job, launcher
from pyspark_jetstream.scan import Tally
from pyspark_jetstream.tables import Tables
from storage.filestore import FileStores
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle
from tests.analytics.test_export import DAY_NS, START_NS, exported, fill, silent, wanted
from tests.e2e.server import die_with_parent, wait_for


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[FileStores]:
    made = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    yield made
    made.close()


def run(spark: Any, path: Path, root: Path) -> None:
    for name, value in job.SPARK_SETTINGS.items():
        spark.conf.set(name, value)
    job.run_spark(parsed(path, maxBytesPerTrigger="20000"), str(root), silent, spark, None,
                  lambda tables: None, Tally())  # fmt: skip


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
        job.run_spark(parsed(tmp_path, **more), str(by_spark), silent, spark, None,
                      lambda tables: None, Tally())  # fmt: skip
        found = exported(plain) if (plain / "messages").exists() else []
        assert found == (exported(by_spark) if (by_spark / "messages").exists() else []), more
        assert len(found) < 200
        with Tables(str(plain)) as one, Tables(str(by_spark)) as other:
            assert one.state.offsets == other.state.offsets


def test_what_a_killed_run_writes_later_is_not_taken(
    spark: Any, tmp_path: Path, stores: FileStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of a run that was killed may end when the next has begun its own."""
    store, root = stores.create(settings("S")), tmp_path / "out"
    fill(store, 300)
    settle(stores)
    staging = Tables.staging

    def with_leftovers(self: Tables) -> Path:
        folder = staging(self)
        shutil.copytree(tmp_path / "killed", folder, dirs_exist_ok=True)
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


def test_what_tasks_leave_out_is_told_by_the_command(
    spark: Any,
    tmp_path: Path,
    stores: FileStores,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Executors have only their log: the driver says it too, and its exit code."""
    store, root = stores.create(settings("S")), tmp_path / "out"
    fill(store, 700)
    settle(stores)
    block = min((tmp_path / "data" / "streams").glob("*/*.blk"))
    content = bytearray(block.read_bytes())
    content[content.index(b"p7")] ^= 1
    block.write_bytes(content)
    monkeypatch.setattr(cli, "spark_session", lambda arguments, more: spark)
    words = ["analytics", "run", "--once", "--data", str(tmp_path), "--out", str(root)]
    assert cli.main([*words, "--option", "failOnDataLoss=false"]) == 1
    said = capsys.readouterr().err
    assert "left out: 1 that did not hold" in said
    assert block.name in said
    assert [row[1] for row in exported(root)] == [*range(1, 7), *range(8, 701)]
    assert cli.main([*words, "--option", "failOnDataLoss=false"]) == 0


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


def wait_for_or_end(process: subprocess.Popen[bytes], what: Callable[[], object]) -> None:
    """Until `what`, or until the process has ended, which it may do first."""
    wait_for(lambda: what() or process.poll() is not None, "a moment to kill at", 180)


@pytest.mark.slow
def test_kill_9_of_the_job_on_spark(tmp_path: Path, stores: FileStores) -> None:
    """While Spark writes a batch, and when one is committed; never two of a row."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'martlet[spark]'")
    try:
        launcher.find_java()
    except launcher.NoJava as missing:
        pytest.skip(str(missing))
    store, root = stores.create(settings("S")), tmp_path / "out"
    own = root / "_martlet"
    words = [sys.executable, "-m", "pyspark_jetstream.cli", "analytics", "run", "--once"]
    words += ["--data", str(tmp_path), "--out", str(root), "--option", "maxBytesPerTrigger=20000"]

    def commits() -> int:
        state = own / "state.json"
        return int(json.loads(state.read_text())["commits"]) if state.exists() else 0

    moments: list[Callable[[], object]] = [
        lambda: list(own.glob("staging/*/spark-*/**/*.parquet")),
        lambda: commits() > before,
    ]
    for moment in moments:
        fill(store, 500)
        settle(stores)
        before = commits()
        with subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        ) as process:
            wait_for_or_end(process, moment)
            process.kill()
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert exported(root) == wanted(store)
