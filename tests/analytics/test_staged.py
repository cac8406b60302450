"""What the job's tasks write: files of a stream and day, of which those of the batch are taken."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_jetstream.tables import partition_of

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'martlet[spark]'")

from pyspark_jetstream.staged import StagedWriter, of_one_stream, take

DAY_NS = 86_400_000_000_000
STREAMS = st.tuples(st.sampled_from(["$G", "A"]), st.sampled_from(["S", "T", "U"]))


def batch_of(rows: list[tuple[str, str]], ts_ns: int = 0) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "account": [account for account, _ in rows],
        "stream": [stream for _, stream in rows],
        "seq": list(range(len(rows))),
        "ts_ns": [ts_ns] * len(rows),
    }
    return pa.RecordBatch.from_pydict(columns)


@given(st.lists(STREAMS, max_size=40))
def test_a_batch_in_pieces_of_one_stream(rows: list[tuple[str, str]]) -> None:
    pieces = list(of_one_stream(batch_of(rows)))
    found = [(account, stream) for account, stream, part in pieces for _ in range(len(part))]
    assert found == rows
    assert [seq for *_, part in pieces for seq in part["seq"].to_pylist()] == list(range(len(rows)))
    assert all(part.schema.names == ["seq", "ts_ns"] for *_, part in pieces)
    places = [(account, stream) for account, stream, _ in pieces]
    assert all(one != other for one, other in pairwise(places))


def test_only_files_of_tasks_that_ended_well_are_taken(tmp_path: Path) -> None:
    writer = StagedWriter(tmp_path)
    writer.write(iter([batch_of([("$G", "S")] * 5)]))  # this task's word was never heard
    heard = [
        writer.write(iter([batch_of([("$G", "S")] * 3), batch_of([("$G", "T")], DAY_NS)])),
        writer.write(iter([])),
        writer.write(iter([batch_of([("$G", "S")] * 2)])),
        None,
    ]
    writer.commit(heard)
    taken = take(tmp_path)
    assert len(set(taken)) == 3
    found = [(partition_of(str(path.relative_to(tmp_path))), path) for path in taken]
    rows = {(w["stream"], w["day"], pq.read_metadata(path).num_rows) for w, path in found}
    assert rows == {("S", "1970-01-01", 3), ("T", "1970-01-02", 1), ("S", "1970-01-01", 2)}
