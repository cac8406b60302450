"""One Spark session per test process, small and on loopback; none where there is no Java."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from pyspark_jetstream import launcher


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install 'martlet[spark]'")
    try:
        java = launcher.find_java()
    except launcher.NoJava as missing:
        pytest.skip(str(missing))
    session = launcher.session(
        java, master="local[1]", memory="1g", settings={"spark.sql.shuffle.partitions": "1"}
    )
    yield session
    session.stop()
