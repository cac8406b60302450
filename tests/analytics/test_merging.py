"""Which files a merge takes: a row is written anew a few times, however many commits there are."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyspark_jetstream import tables
from pyspark_jetstream.tables import Tables, partition_path

ROWS, ROW_BYTES = 8, 1 << 10
SMALLEST = 4 * ROWS * ROW_BYTES


@pytest.fixture
def folder() -> str:
    return partition_path("$G", "S", "2026-11-18")


def add(made: Tables, folder: str, first: int) -> None:
    """Rows that do not compress."""
    path = made.staging() / folder / "part.parquet"
    path.parent.mkdir(parents=True)
    payloads = [random.Random(first + at).randbytes(ROW_BYTES) for at in range(ROWS)]
    pq.write_table(pa.table({"seq": range(first, first + ROWS), "payload": payloads}), path)
    made.commit([path], {})


def test_a_byte_is_written_anew_once_for_each_size(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SIZE_CLASSES", tuple(SMALLEST << 3 * at for at in range(3)))
    commits, rewritten = 200, 0
    with Tables(str(tmp_path / "out")) as made:
        for at in range(commits):
            add(made, folder, at * ROWS)
            before = {entry.path for entry in made.state.files}
            if made.compact():
                rewritten += sum(e.rows for e in made.state.files if e.path not in before)
        assert rewritten <= 3 * commits * ROWS
        assert len(made.state.files) <= 3 * tables.FILES_OF_A_SIZE_MAX
        found = [pq.read_table(made.root / entry.path).column("seq") for entry in made.state.files]
    assert sorted(seq.as_py() for column in found for seq in column) == list(range(commits * ROWS))


def test_a_large_file_stays_as_it_is(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "SIZE_CLASSES", (ROWS * ROW_BYTES // 2,))
    with Tables(str(tmp_path / "out")) as made:
        for at in range(2 * tables.FILES_OF_A_SIZE_MAX):
            add(made, folder, at * ROWS)
        assert made.compact() == 0
