"""What each earlier version wrote, compressed and encrypted: read, exported, archived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyspark_jetstream import export, reading
from pyspark_jetstream.archive import Uploader
from tests.analytics.stores import parsed
from tests.analytics.test_export import exported, silent
from tests.golden.content import KEY, expected
from tests.golden.make import FOLDER
from tests.unit.test_storage_golden import unpacked

FILES = sorted(FOLDER.glob("storage-*.json"))
NAMES = ("seq", "ts_ns", "subject", "headers", "payload")

Row = tuple[int, int, str, list[tuple[str, list[str]]] | None, bytes]


def wanted() -> list[Row]:
    return [
        (seq, ts_ns, subject.decode(), [("Number", [str(seq)])] if headers else None, payload)
        for seq, ts_ns, subject, headers, payload in expected()
    ]


def rows(path: Path, **more: str) -> list[Row]:
    table = reading.read_table(parsed(path, columns=",".join(NAMES), **more))
    return list(zip(*(table.column(name).to_pylist() for name in NAMES), strict=True))


@pytest.fixture(params=FILES, ids=lambda file: file.stem.removeprefix("storage-"))
def golden(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store directory as the server had it when it was killed."""
    monkeypatch.setenv("MARTLET_ENCRYPTION_KEY", KEY)
    unpacked(request.param, tmp_path / "store" / "data")
    return tmp_path / "store"


def test_each_row_as_it_was_stored(golden: Path) -> None:
    assert rows(golden) == wanted()
    assert rows(golden, minPartitions="20") == wanted()
    assert rows(golden, subject="golden.3") == [row for row in wanted() if row[2] == "golden.3"]
    some = rows(golden, startingOffsets="17", endingOffsets="52")
    assert some == [row for row in wanted() if 17 <= row[0] < 52]


def test_exports_and_archives(golden: Path, tmp_path: Path) -> None:
    export.to_parquet(parsed(golden), str(tmp_path / "tables"), silent)
    assert exported(tmp_path / "tables") == [
        (subject, seq, payload) for seq, _, subject, _, payload in wanted()
    ]
    Uploader(str(golden), str(tmp_path / "archive")).run()
    archived = rows(tmp_path / "archive")
    assert archived == wanted()[: len(archived)]
    assert len(archived) > len(wanted()) // 2  # the block that is still open is not there


def test_through_spark(golden: Path, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    frame = (
        spark.read.format("jetstream")
        .options(includeHeaders="true", encryptionKeyFile=str(tmp_path / "key"))
        .load(str(golden))
    )
    found = [tuple(row[name] for name in NAMES) for row in frame.orderBy("seq").collect()]
    assert [row[:3] for row in found] == [row[:3] for row in wanted()]
    assert [bytes(row[4]) for row in found] == [row[4] for row in wanted()]
    assert [row[3] for row in found] == [dict(row[3]) if row[3] else None for row in wanted()]
