"""`martlet export parquet|iceberg|delta`: exactly once through restarts, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyspark_jetstream import columns, offsets
from pyspark_jetstream.errors import JetStreamError, install
from pyspark_jetstream.follow import Follower, Step
from pyspark_jetstream.objects import local_folder
from pyspark_jetstream.options import Options
from pyspark_jetstream.scan import Tally
from pyspark_jetstream.tables import (
    COLUMNS,
    PARTITION_COLUMNS,
    DayWriter,
    Tables,
    written_alone,
)

LAKE_STEP_BYTES = 64 << 20
BATCH_BYTES = 2 << 20
OFFSETS_PROPERTY = "martlet.offsets"
APPLICATION = "martlet-export"

Told = Callable[[str], None]


def for_tables(asked: Options) -> Options:
    """With the columns that the Parquet tables have beside their folders."""
    names = [name for name in COLUMNS.split(",") if name not in PARTITION_COLUMNS]
    chosen = columns.choose(names, kafka=False, headers=True, deleted=False)
    return replace(asked, columns=chosen, batch_bytes=BATCH_BYTES)


def to_parquet(asked: Options, root: str, told: Told, tally: Tally | None = None) -> int:
    """Bring the Parquet tables below `root` up to date; how many rows were added."""
    follower = Follower(for_tables(asked), tally or Tally())
    with Tables(root) as tables:
        added = 0
        for step in follower.steps(dict(tables.state.offsets)):
            writer = DayWriter(tables.staging())
            for piece, batch in follower.batches(step):
                writer.write(piece.account, piece.stream, batch)
            staged = writer.close()
            tables.commit(staged, step.offsets)
            added += writer.rows
            told(f"{describe(step)}: {writer.rows:,} rows")
        merged = tables.compact()
        if merged:
            told(f"{merged} small files became large ones")
    return added


def describe(step: Step) -> str:
    ends = offsets.sequences(step.offsets)
    return ", ".join(f"{name} up to {behind - 1}" for name, behind in ends.items())


def for_lake(asked: Options) -> Options:
    """One table with all columns."""
    names = COLUMNS.split(",")
    chosen = columns.choose(names, kafka=False, headers=True, deleted=False)
    return replace(asked, columns=chosen, batch_bytes=BATCH_BYTES)


def step_table(follower: Follower, step: Step) -> pa.Table:
    schema = columns.arrow_schema(follower.asked.columns)
    return pa.Table.from_batches((batch for _, batch in follower.batches(step)), schema)


def to_delta(asked: Options, place: str, told: Told, tally: Tally | None = None) -> int:
    """Append to a Delta table; the offsets are application transactions of the same commit."""
    try:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError
    except ImportError:
        raise JetStreamError(f"this needs deltalake: {install('lakehouse')}") from None
    follower = Follower(for_lake(asked), tally or Tally(), LAKE_STEP_BYTES)
    schema = columns.arrow_schema(follower.asked.columns)
    partitions = ["account", "stream"]
    # One table object from reading the offsets to the commit: by its version another writer's
    # commits in between are known, and refuse ours.
    known = DeltaTable.create(place, schema, mode="ignore", partition_by=partitions)
    reached = {}
    for name in offset_names(follower):
        version = known.transaction_version(f"{APPLICATION}:{name}")
        if version is not None:
            reached[name] = version
    added = 0
    for step in follower.steps(reached):
        table = step_table(follower, step)
        done = [Transaction(f"{APPLICATION}:{name}", at) for name, at in step.offsets.items()]
        commit = CommitProperties(app_transactions=done)
        try:
            write_deltalake(known, table, mode="append", commit_properties=commit)
        except CommitFailedError as error:
            raise JetStreamError(f"{place} is being written by another process: {error}") from error
        added += table.num_rows
        told(f"{describe(step)}: {table.num_rows:,} rows")
    return added


def offset_names(follower: Follower) -> list[str]:
    return [name for view in follower.views() for name in offsets.reached(view, 0)]


def to_iceberg(asked: Options, place: str, told: Told, tally: Tally | None = None) -> int:
    """Append to the Iceberg table `jetstream.messages`; offsets are properties of its snapshots.

    `place` is a folder; its catalog is the SQLite file catalog.db in it.
    """
    try:
        from pyiceberg.catalog.sql import SqlCatalog
    except ImportError:
        raise JetStreamError(f"this needs pyiceberg: {install('lakehouse')}") from None
    folder = local_folder(place, "the place of an Iceberg table (with its catalog)").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}"
    added = 0
    # A commit that another one overtook is tried again by pyiceberg, with the same rows.
    with (
        written_alone(folder / ".martlet-export.lock", place),
        closing(SqlCatalog("martlet", uri=uri, warehouse=warehouse)) as catalog,
    ):
        catalog.create_namespace_if_not_exists("jetstream")
        follower = Follower(for_lake(asked), tally or Tally(), LAKE_STEP_BYTES)
        schema = columns.arrow_schema(follower.asked.columns)
        table = catalog.create_table_if_not_exists("jetstream.messages", schema)
        reached = iceberg_offsets(table)
        for step in follower.steps(dict(reached)):
            rows = step_table(follower, step)
            reached |= step.offsets
            said = {OFFSETS_PROPERTY: json.dumps(reached)}
            with table.transaction() as commit:
                commit.append(rows, snapshot_properties=said)
                commit.set_properties(said)
            added += rows.num_rows
            told(f"{describe(step)}: {rows.num_rows:,} rows")
    return added


def iceberg_offsets(table: Any) -> dict[str, int]:
    """Of the newest snapshot that is ours: others may append or compact in between.

    When they let ours expire, the table's own property tells.
    """
    snapshot = table.current_snapshot()
    while snapshot is not None:
        said = snapshot.summary[OFFSETS_PROPERTY] if snapshot.summary is not None else None
        if said is not None:
            return dict(json.loads(said))
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return dict(json.loads(table.properties.get(OFFSETS_PROPERTY, "{}")))


SINKS: dict[str, Callable[[Options, str, Told, Tally | None], int]] = {
    "parquet": to_parquet,
    "delta": to_delta,
    "iceberg": to_iceberg,
}
