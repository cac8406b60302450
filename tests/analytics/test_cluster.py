"""Executors elsewhere: two workers that have neither our package nor the blocks, only an archive.

Six JVMs for a minute: run by `make spark-cluster`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_jetstream import launcher, packed, reading
from pyspark_jetstream.archive import Uploader
from storage.filestore import FileStores
from tests.analytics.cluster import Cluster, foreign_python
from tests.analytics.stores import SMALL_BLOCKS, parsed, settings, settle
from tests.tidy.sources import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("MARTLET_SPARK_CLUSTER"), reason="six JVMs: make spark-cluster"
    ),
]


def test_workers_read_an_archive_with_nothing_but_the_zip(tmp_path: Path) -> None:
    stores = FileStores(tmp_path / "data", **SMALL_BLOCKS)
    store = stores.create(settings("S"))
    for at in range(1, 3001):
        store.store(f"a.{at % 5}", b"", b"p%d" % at, at)
    store.delete(17)
    settle(stores)
    stores.close()
    archive = f"file://{tmp_path}/archive"
    Uploader(str(tmp_path), archive).run()
    seqs = reading.read_table(parsed(archive)).column("seq").to_pylist()
    python, package = foreign_python(tmp_path / "python"), tmp_path / "package.zip"
    packed.write_zip(package)
    with Cluster(tmp_path, launcher.find_java().home) as cluster:
        done = subprocess.run(
            [sys.executable, "-m", "tests.analytics.on_cluster", cluster.url, str(package), archive,
             python],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["count"], found["sum"]) == (len(seqs), sum(seqs))
    assert found["count"] > 2000
    modules = {module for module, _ in found["places"]}
    assert all("package.zip" in module for module in modules), modules
    assert len({folder for _, folder in found["places"]}) == 2, "both workers took part"
