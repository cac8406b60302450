"""What Spark costs whoever feeds it from Python: a source that gives one batch again and again.

Its columns, rows and batches are those of a scan of the blocks; nothing is read for them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_jetstream import columns, options, reading, scan


class RepeatedBatch(DataSource):
    """Options: `path`, `rows`, and `tasks`, which share the rows."""

    @classmethod
    def name(cls) -> str:
        return "repeated"

    def schema(self) -> str:
        return ", ".join(f"`{column.name}` {column.spark}" for column in columns.NATIVE)

    def reader(self, schema: StructType) -> DataSourceReader:
        return RepeatedReader(
            self.options["path"], int(self.options["rows"]), int(self.options["tasks"])
        )


class RepeatedReader(DataSourceReader):
    def __init__(self, path: str, rows: int, tasks: int) -> None:
        asked = options.parse({"path": path})
        pieces = reading.plan_batch(reading.open_store(asked), asked)[:1]
        self.batch = next(scan.read_pieces(pieces, reading.scan_of(asked)))
        self.rows, self.tasks = rows, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(task) for task in range(self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = self.rows // self.tasks + (partition.value < self.rows % self.tasks)
        while rows > 0:
            yield self.batch.slice(0, rows)
            rows -= self.batch.num_rows
