"""Message ids that came more than once, of more messages than memory has room for."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

IDS_AT_ONCE = 4_000_000
PARTS_MAX = 256
SCHEMA = pa.schema(
    [
        ("msg_id", pa.string()),
        ("count", pa.int64()),
        ("first_ns", pa.int64()),
        ("stream", pa.string()),
    ]
)
COUNTS = [("count", "sum"), ("first_ns", "min")]


class Duplicates:
    """Counts ids by stream. Those of many messages lie in temporary files, spread by their hash."""

    def __init__(self, messages: int) -> None:
        self._count = min(-(-max(messages, 1) // IDS_AT_ONCE), PARTS_MAX)
        self._held: list[pa.Table] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[pa.RecordBatchStreamWriter] = []
        if self._count > 1:
            self._folder = tempfile.TemporaryDirectory(prefix="martlet-report-")
            self._files = [pa.ipc.new_stream(str(path), SCHEMA) for path in self._paths()]

    def _paths(self) -> list[Path]:
        assert self._folder is not None
        return [Path(self._folder.name, f"{at}.arrow") for at in range(self._count)]

    def __enter__(self) -> Duplicates:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._folder is not None:
            self._folder.cleanup()

    def _close(self) -> None:
        while self._files:
            self._files.pop().close()

    def add(self, stream: str, rows: pa.Table) -> None:
        """Rows with `msg_id` and `ts_ns`; those without an id do not matter."""
        rows = rows.filter(pc.is_valid(rows.column("msg_id")))
        if not rows.num_rows:
            return
        counted = rows.group_by("msg_id").aggregate([("ts_ns", "count"), ("ts_ns", "min")])
        names = pa.array([stream] * counted.num_rows, pa.string())
        counted = counted.rename_columns(["msg_id", "count", "first_ns"])
        counted = counted.append_column("stream", names).select(SCHEMA.names).cast(SCHEMA)
        if self._count == 1:
            self._held.append(counted)
            return
        ids = counted.column("msg_id").to_pylist()
        parts = pa.array([hash(one) % self._count for one in ids], pa.int32())
        for at, file in enumerate(self._files):
            file.write_table(counted.filter(pc.equal(parts, at)))

    def most(self, top: int) -> tuple[int, list[dict[str, Any]]]:
        """How many ids came more than once, and those that came most often."""
        self._close()
        found, rows = 0, []
        for at in range(self._count):
            twice = more_than_once(self._part(at))
            found += twice.num_rows
            rows.append(largest(twice, top))
        return found, largest(pa.concat_tables(rows), top).to_pylist()

    def _part(self, at: int) -> pa.Table:
        if self._folder is None:
            return pa.concat_tables([SCHEMA.empty_table(), *self._held])
        with pa.ipc.open_stream(pa.memory_map(str(self._paths()[at]))) as file:
            return file.read_all()


def more_than_once(rows: pa.Table) -> pa.Table:
    found = rows.group_by(["stream", "msg_id"]).aggregate(COUNTS)
    found = found.rename_columns(["stream", "msg_id", "count", "first_ns"])
    return found.filter(pc.greater(found.column("count"), 1))


def largest(rows: pa.Table, top: int) -> pa.Table:
    order = pc.sort_indices(rows, [("count", "descending"), ("first_ns", "ascending")])
    return rows.take(order[:top])
