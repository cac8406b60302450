"""`rows.write.format("martlet-staged").option("folder", F)`: a batch's rows as an export's files.

Each task writes Parquet files of one stream and day below the folder, and `take` tells which of
them are the batch's: those of tasks that were started twice, or killed, are not. Spark's own
writer starts a process for each mode of a folder or file that it sets, some fifty for a batch, and
a server beside us feels that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_jetstream.tables import PARTITION_COLUMNS, DayWriter

STAGED = "staged.json"


def take(folder: Path) -> list[Path]:
    """The files of the batch that was written below `folder`."""
    return [folder / path for path in json.loads((folder / STAGED).read_text())]


class StagedSink(DataSource):
    """Registered with a session by the job alone: what it writes are no tables yet."""

    @classmethod
    def name(cls) -> str:
        return "martlet-staged"

    def writer(self, schema: StructType, overwrite: bool) -> StagedWriter:
        return StagedWriter(Path(self.options["folder"]))


@dataclass
class Written(WriterCommitMessage):
    """By one task, below the folder."""

    paths: list[str]


class StagedWriter(DataSourceArrowWriter):
    """Goes to the tasks; `commit` is called where the job is planned, in a process of Spark's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        # A name of its own: a task of a job that was killed may be at work even now.
        writer = DayWriter(self._folder, uuid4().hex)
        for batch in iterator:
            for account, stream, rows in of_one_stream(batch):
                writer.write(account, stream, rows)
        return Written([str(path.relative_to(self._folder)) for path in writer.close()])

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        paths = [path for each in messages if isinstance(each, Written) for path in each.paths]
        (self._folder / STAGED).write_text(json.dumps(paths))


def of_one_stream(batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """A batch in pieces of one stream each, without the columns that the folders tell."""
    names = [name for name in batch.schema.names if name not in PARTITION_COLUMNS]
    told = [pc.run_end_encode(batch.column(name)) for name in ("account", "stream")]
    ends = sorted({end for column in told for end in column.run_ends.to_pylist()})
    rows, begin = batch.select(names), 0
    for end in ends:
        account, stream = (batch.column(name)[begin].as_py() for name in ("account", "stream"))
        yield account, stream, rows.slice(begin, end - begin)
        begin = end
