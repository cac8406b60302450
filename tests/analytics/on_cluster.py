"""The driver's side of the cluster test: `on_cluster.py MASTER ZIP ARCHIVE PYTHON`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark_jetstream import launcher


def where(_: Iterator[int]) -> Iterator[tuple[str, str]]:
    import pyspark_jetstream

    yield str(pyspark_jetstream.__file__), str(Path.cwd())


def main() -> None:
    master, package, archive, python = sys.argv[1:]
    java = launcher.find_java()
    settings = {
        "spark.pyspark.python": python,
        "spark.submit.pyFiles": package,
        "spark.executor.memory": "500m",
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = launcher.session(java, master=master, memory="512m", settings=settings)
    messages = spark.read.format("jetstream").option("minPartitions", "4").load(archive)
    (row,) = messages.selectExpr("count(*)", "sum(seq)").collect()
    places = spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).collect()
    print(json.dumps({"count": row[0], "sum": row[1], "places": places}))
    spark.stop()


if __name__ == "__main__":
    main()
