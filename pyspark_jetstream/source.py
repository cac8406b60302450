"""`spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from pyspark_jetstream import columns, left_out, options, plan, reading, scan
from pyspark_jetstream.errors import OptionError
from pyspark_jetstream.options import Options
from pyspark_jetstream.plan import Piece
from pyspark_jetstream.predicates import Predicates
from pyspark_jetstream.scan import Tally

BOUNDS: dict[type, str] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
TEXTS: dict[type, str] = {
    EqualTo: "in",
    StringStartsWith: "starts",
    StringEndsWith: "ends",
    StringContains: "contains",
}


class BlockPartition(InputPartition):
    """Pieces that one task reads."""

    def __init__(self, pieces: list[Piece]) -> None:
        super().__init__(None)
        self.pieces = pieces


class DefaultSource(DataSource):
    """Found by Spark through the name of the module."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        spare_what_is_loaded()
        self._parsed: Options | None = None

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    @property
    def parsed(self) -> Options:
        if self._parsed is None:
            self._parsed = options.parse(dict(self.options))
        return self._parsed

    def schema(self) -> str:
        return ", ".join(column.ddl for column in self.parsed.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options.check_for_batch(self.parsed)
        asked = projected(self.parsed, schema)
        return PushingReader(asked) if asked.push_filters else BatchReader(asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pyspark_jetstream.streaming import StreamReader

        options.check_for_stream(self.parsed)
        return StreamReader(projected(self.parsed, schema))


def projected(asked: Options, schema: StructType) -> Options:
    """Only the columns of the schema that Spark wants: a user's own schema is a projection."""
    chosen = columns.choose(
        schema.fieldNames(), kafka=asked.kafka, headers=True, deleted=asked.include_deleted
    )
    for column, wanted in zip(chosen, schema.fields, strict=True):
        if wanted.dataType.simpleString() != column.spark:
            raise OptionError(
                f"column {column.name} is {column.spark}, not {wanted.dataType.simpleString()}"
            )
        if column.may_be_null and not wanted.nullable:
            raise OptionError(f"column {column.name} may be null: leave out NOT NULL")
    said = zip(chosen, schema.fields, strict=True)
    return replace(
        asked,
        columns=tuple(replace(column, nullable=wanted.nullable) for column, wanted in said),
    )


class BatchReader(DataSourceReader):
    """One query over what is there when it is planned."""

    def __init__(self, asked: Options) -> None:
        self.asked = asked
        self.predicates = Predicates()

    def partitions(self) -> list[InputPartition]:
        spare_what_is_loaded()
        store, tally = reading.open_store(self.asked), Tally()
        pieces = reading.plan_batch(store, self.asked, self.predicates, tally)
        tell(tally, self.asked)
        return partitions_of(pieces, self.asked)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.asked, self.predicates)


class PushingReader(BatchReader):
    """With filters handed down. Spark refuses it unless its session allows that."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for one in filters:
            taken = with_filter(self.predicates, one, self.asked)
            if taken is None:
                yield one
            else:
                self.predicates = taken


def with_filter(predicates: Predicates, one: Filter, asked: Options) -> Predicates | None:
    """`predicates` and also `one`; None: Spark has to do it."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1 or asked.kafka:
        return None
    name, value = attribute[0], getattr(one, "value", None)
    if type(one) is In and all(isinstance(text, str) for text in one.value):
        return predicates.with_test(name, ("in", tuple(one.value)))
    if isinstance(value, str) and type(one) in TEXTS:
        return predicates.with_test(name, (TEXTS[type(one)], (value,)))
    if type(one) in BOUNDS:
        return predicates.with_bound(name, BOUNDS[type(one)], value)
    return None


def partitions_of(pieces: list[Piece], asked: Options) -> list[InputPartition]:
    return [BlockPartition(packed) for packed in plan.partition(pieces, asked.min_partitions)]


def read_partition(
    partition: Any, asked: Options, predicates: Predicates | None = None
) -> Iterator[pa.RecordBatch]:
    # Spark makes an empty partition of its own when there is none.
    pieces = getattr(partition, "pieces", [])
    tally = Tally()
    spare_what_is_loaded()
    yield from scan.read_pieces(pieces, reading.scan_of(asked, predicates), tally)
    tell(tally, asked)


@cache
def spare_what_is_loaded() -> None:
    """Spark's worker collects garbage behind each task, in all that was ever imported.

    That took a third of a scan's processor time, and some milliseconds of each planning. Once per
    process, because what is frozen and becomes garbage later stays.
    """
    gc.freeze()


def tell(tally: Tally, asked: Options) -> None:
    """Spark has no place for it but the log: the driver's when planning, else the executor's."""
    if not tally.words():
        return
    print(f"jetstream: {tally.words()}", file=sys.stderr, flush=True)
    if asked.left_out_folder is not None:
        left_out.write(Path(asked.left_out_folder), tally)
