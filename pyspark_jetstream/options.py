"""The options of the data source: names, values, refusals. Names follow Spark's Kafka source."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_jetstream import columns, subjects
from pyspark_jetstream.columns import Column
from pyspark_jetstream.errors import OptionError

EARLIEST: Final = -2
LATEST: Final = -1
# Small: while Spark takes one batch the next is made, and both stay in the processor's caches.
BATCH_BYTES: Final = 1 << 20
BATCH_BYTES_MAX: Final = 64 << 20
# Large tasks, for each has its price; but enough of them to keep the cores busy to the end. Spark
# takes 128 MB of a file for one: blocks, which are seldom compressed, have the same rows in more.
# Planning knows no executors: the processors here are a guess, and right for a local session.
PARTITION_BYTES: Final = 256 << 20
PARTITION_BYTES_MIN: Final = 8 << 20
PROCESSORS: Final = os.cpu_count() or 1
PARTITIONS_WANTED: Final = 2 * PROCESSORS
NAMES: Final = (
    "path",
    "streams",
    "streamsPattern",
    "subject",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxBlocksPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "includeDeleted",
    "columns",
    "schema",
    "batchBytes",
    "pushFilters",
    "encryptionKeyFile",
    "leftOutFolder",
)
# Of those, what has a meaning where tables are kept: the rest is about one query.
NAMES_FOR_TABLES: Final = (
    "streams",
    "streamsPattern",
    "subject",
    "startingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "encryptionKeyFile",
)
BY_LOWER: Final = {name.lower(): name for name in NAMES}
PUSHDOWN_VARIABLE: Final = "MARTLET_SPARK_PUSHDOWN"

Offsets = int | dict[str, int]
"""One for all streams, or by name (STREAM or ACCOUNT/STREAM); EARLIEST and LATEST are negative."""


@dataclass(frozen=True)
class Options:
    """What a reader was asked for."""

    path: str
    streams: tuple[str, ...] = ()
    streams_pattern: str | None = None
    subject: tuple[str, ...] = ()
    starting: Offsets | None = None
    ending: Offsets = LATEST
    low_ns: int = -(1 << 63)
    high_ns: int = (1 << 63) - 1
    max_offsets: int | None = None
    max_bytes: int | None = None
    max_blocks: int | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    include_deleted: bool = False
    columns: tuple[Column, ...] = ()
    kafka: bool = False
    batch_bytes: int = BATCH_BYTES
    push_filters: bool = False
    encryption_key_file: str | None = None
    left_out_folder: str | None = None

    def wants(self, account: str, stream: str) -> bool:
        if not account:  # what the server keeps for itself
            return False
        if self.streams:
            return stream in self.streams or f"{account}/{stream}" in self.streams
        if self.streams_pattern is not None:
            expression = self.streams_pattern
            return any(re.fullmatch(expression, name) for name in (stream, f"{account}/{stream}"))
        return True


class Given:
    """Options as text, by name without regard to case."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._values = {}
        for name, value in options.items():
            known = BY_LOWER.get(name.lower())
            if known is None:
                raise OptionError(unknown(name))
            if value is not None:
                self._values[known] = str(value)

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def names(self, name: str) -> tuple[str, ...]:
        value = self._values.get(name)
        found = tuple(part.strip() for part in (value or "").split(",") if part.strip())
        if value is not None and not found:
            raise OptionError(f"{name}={value!r} names nothing; leave it out to mean all")
        return found

    def truth(self, name: str, default: bool) -> bool:
        value = self._values.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise OptionError(f"{name}={value!r}: only true or false")
        return value == "true"

    def number(self, name: str, low: int, high: int = (1 << 63) - 1) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?\d+", value) or not low <= int(value) <= high:
            bounds = f"from {low} on" if high == (1 << 63) - 1 else f"from {low} to {high}"
            raise OptionError(f"{name}={value!r}: a whole number {bounds}")
        return int(value)


def unknown(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), BY_LOWER, 1)
    hint = f"; did you mean {BY_LOWER[close[0]]}?" if close else "."
    return f"unknown option {name!r}{hint} Valid options: {', '.join(NAMES)}"


def check_for_tables(names: Iterable[str]) -> None:
    for name in names:
        known = BY_LOWER.get(name.lower())
        if known is not None and known not in NAMES_FOR_TABLES:
            valid = ", ".join(NAMES_FOR_TABLES)
            raise OptionError(f"option {known} is not for keeping tables. Valid options: {valid}")


def check_for_batch(asked: Options) -> None:
    """A batch reads all at once."""
    limits = {
        "maxOffsetsPerTrigger": asked.max_offsets,
        "maxBytesPerTrigger": asked.max_bytes,
        "maxBlocksPerTrigger": asked.max_blocks,
    }
    for name, value in limits.items():
        if value is not None:
            raise OptionError(f"option {name} is for readStream; a batch takes endingOffsets")


def check_for_stream(asked: Options) -> None:
    if asked.ending != LATEST:
        raise OptionError("option endingOffsets is for batches; readStream has no end")


def parse(options: Mapping[str, Any]) -> Options:
    given = Given(options)
    path = given.text("path")
    if not path:
        raise OptionError(
            "option path is missing: a store directory, a stream's folder, an archive"
        )
    if given.text("streams") and given.text("streamsPattern"):
        raise OptionError("give streams or streamsPattern, not both")
    pattern = given.text("streamsPattern")
    if pattern is not None:
        check_expression(pattern)
    for subject in given.names("subject"):
        subjects.check_pattern(subject)
    low_ms, high_ms = (given.number(name, 0) for name in ("startingTimestamp", "endingTimestamp"))
    if low_ms is not None and high_ms is not None and low_ms > high_ms:
        raise OptionError(f"startingTimestamp={low_ms} is behind endingTimestamp={high_ms}")
    starting = given.text("startingOffsets")
    kafka = choose_schema(given)
    headers, deleted = given.truth("includeHeaders", False), given.truth("includeDeleted", False)
    if kafka and deleted:
        raise OptionError("schema=kafka has no column for includeDeleted")
    return Options(
        path=path,
        streams=given.names("streams"),
        streams_pattern=pattern,
        subject=given.names("subject"),
        starting=None if starting is None else parse_offsets("startingOffsets", starting),
        ending=parse_offsets("endingOffsets", given.text("endingOffsets") or "latest"),
        low_ns=-(1 << 63) if low_ms is None else low_ms * 1_000_000,
        high_ns=(1 << 63) - 1 if high_ms is None else high_ms * 1_000_000 - 1,
        max_offsets=given.number("maxOffsetsPerTrigger", 1),
        max_bytes=given.number("maxBytesPerTrigger", 1),
        max_blocks=given.number("maxBlocksPerTrigger", 1),
        min_partitions=given.number("minPartitions", 1, 1_000_000),
        fail_on_data_loss=given.truth("failOnDataLoss", True),
        include_headers=headers,
        include_deleted=deleted,
        columns=columns.choose(
            given.names("columns"), kafka=kafka, headers=headers, deleted=deleted
        ),
        kafka=kafka,
        batch_bytes=given.number("batchBytes", 1, BATCH_BYTES_MAX) or BATCH_BYTES,
        push_filters=given.truth("pushFilters", os.environ.get(PUSHDOWN_VARIABLE) == "1"),
        encryption_key_file=given.text("encryptionKeyFile"),
        left_out_folder=given.text("leftOutFolder"),
    )


def choose_schema(given: Given) -> bool:
    schema = (given.text("schema") or "jetstream").lower()
    if schema not in ("jetstream", "kafka"):
        raise OptionError(f"schema={schema!r}: jetstream or kafka")
    return schema == "kafka"


def check_expression(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"streamsPattern={pattern!r} is no regular expression: {error}") from None


def parse_offsets(name: str, value: str) -> Offsets:
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        refuse_no_end(name, EARLIEST if word == "earliest" else LATEST)
        return EARLIEST if word == "earliest" else LATEST
    wrong = OptionError(
        f"{name}={value!r}: earliest, latest, a sequence, or JSON like "
        '{"ORDERS": 123} or {"ORDERS": {"0": 123}} (-2 earliest, -1 latest)'
    )
    try:
        found = json.loads(value)
    except ValueError:
        raise wrong from None
    if not isinstance(found, dict):
        offset = one_offset(found, wrong)
        refuse_no_end(name, offset)
        return offset
    by_stream = {stream: one_offset(offset, wrong) for stream, offset in found.items()}
    for offset in by_stream.values():
        refuse_no_end(name, offset)
    return by_stream


def refuse_no_end(name: str, offset: int) -> None:
    if name == "endingOffsets" and offset == EARLIEST:
        raise OptionError("endingOffsets=earliest (-2) would read nothing")


def one_offset(offset: Any, wrong: OptionError) -> int:
    if isinstance(offset, dict) and list(offset) == ["0"]:
        offset = offset["0"]
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < EARLIEST:
        raise wrong
    return offset


def offset_for(offsets: Offsets, account: str, stream: str) -> int | None:
    """The offset that was given for one stream; None: it is not named."""
    if isinstance(offsets, int):
        return offsets
    found = offsets.get(f"{account}/{stream}")
    return found if found is not None else offsets.get(stream)
