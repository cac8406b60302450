"""Reading without Spark: the same planning and the same pieces, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from pyspark_jetstream import columns, offsets, plan, scan, sealed
from pyspark_jetstream.directory import Directory
from pyspark_jetstream.errors import OptionError
from pyspark_jetstream.options import EARLIEST, Offsets, Options
from pyspark_jetstream.plan import Piece
from pyspark_jetstream.predicates import Predicates
from pyspark_jetstream.scan import Scan, Tally
from pyspark_jetstream.view import StreamView


class Store(Protocol):
    """A data directory or an archive."""

    def views(self, wanted: Callable[[str, str], bool]) -> list[StreamView]: ...


def open_store(options: Options) -> Store:
    """Whatever `path` is."""
    from pyspark_jetstream import archive, objects

    def key() -> str | None:
        return sealed.server_key(options.encryption_key_file)

    if archive.is_archive(options.path):
        return archive.Archive(options.path, key)
    return Directory(str(objects.local_path(options.path)), key, options.streams)


def scan_of(options: Options, predicates: Predicates | None = None) -> Scan:
    return Scan(
        columns=options.columns,
        predicates=predicates or Predicates(),
        subject=options.subject,
        low_ns=options.low_ns,
        high_ns=options.high_ns,
        batch_bytes=options.batch_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
        include_deleted=options.include_deleted,
    )


def check_named(store: Store, views: list[StreamView], options: Options) -> None:
    """Streams that the options name and that are not there; to a stream they may still come."""
    found = {name for view in views for name in (view.stream, view.name)}
    for option, names in (
        ("streams", options.streams),
        ("startingOffsets", sorted_names(options.starting)),
        ("endingOffsets", sorted_names(options.ending)),
    ):
        if set(names) <= found:
            continue
        views = store.views(lambda account, stream: bool(account))
        found |= {name for view in views for name in (view.stream, view.name)}
        for name in names:
            if name not in found:
                there = ", ".join(view.name for view in views) or "none"
                raise OptionError(f"{option}: there is no stream {name!r}; there are {there}")


def sorted_names(said: Offsets | None) -> list[str]:
    return sorted(offsets.sequences(said)) if isinstance(said, dict) else []


def plan_batch(
    store: Store,
    options: Options,
    predicates: Predicates | None = None,
    tally: Tally | None = None,
) -> list[Piece]:
    """All that a batch reads, by stream and sequence."""
    predicates = predicates or Predicates()
    pieces = []
    views = store.views(options.wants)
    check_named(store, views, options)
    for view in views:
        if predicates.wants_stream(view.account, view.stream):
            span = plan.resolve(view, options, EARLIEST, tally)
            pieces += plan.pieces_of(view, span, options, predicates, tally)
    return pieces


def read_batches(options: Options, tally: Tally | None = None) -> Iterator[pa.RecordBatch]:
    """All rows that the options ask for."""
    pieces = plan_batch(open_store(options), options, tally=tally)
    yield from scan.read_pieces(pieces, scan_of(options), tally)


def read_table(options: Options, tally: Tally | None = None) -> pa.Table:
    schema = columns.arrow_schema(options.columns)
    return pa.Table.from_batches(read_batches(options, tally), schema)
