"""The streaming side: how far each micro-batch goes, in the offsets of `offsets.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_jetstream import offsets, plan, reading
from pyspark_jetstream.limits import Shares, Span, limits_of
from pyspark_jetstream.options import EARLIEST, LATEST, Options, offset_for
from pyspark_jetstream.predicates import Predicates
from pyspark_jetstream.scan import Tally
from pyspark_jetstream.source import partitions_of, read_partition, tell
from pyspark_jetstream.view import StreamView

Offset = dict[str, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process for the whole query; the views are looked at anew for each batch."""

    def __init__(self, asked: Options) -> None:
        self._asked = asked
        self._store: reading.Store | None = None
        self._target: Offset | None = None
        self._waiting: dict[str, int] = {}
        self._shares = Shares()

    def __reduce__(self) -> tuple[type[StreamReader], tuple[Options]]:
        return StreamReader, (self._asked,)

    def _views(self) -> Mapping[str, StreamView]:
        if self._store is None:
            self._store = reading.open_store(self._asked)
        return {view.name: view for view in self._store.views(self._asked.wants)}

    def initialOffset(self) -> Offset:  # noqa: N802
        found: Offset = {}
        tally = Tally()
        for name, view in self._views().items():
            said = LATEST if self._asked.starting is None else self._asked.starting
            start = offset_for(said, view.account, view.stream)
            start = EARLIEST if start is None else start
            if 0 <= start < view.first_seq:
                what = f"stream {name} begins at {view.first_seq}, not at {start}"
                plan.lose(self._asked, what, tally)
                start = EARLIEST
            if offsets.is_other(view, said):
                plan.lose(self._asked, f"stream {name} was deleted and made anew", tally)
                start = EARLIEST
            found |= offsets.reached(view, plan.position(start, view))
        tell(tally, self._asked)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Ours are options, and may hold together; they are applied to whatever limit comes.
        if self._asked.max_offsets is not None:
            return ReadMaxRows(self._asked.max_offsets)
        if self._asked.max_bytes is not None:
            return ReadMaxBytes(self._asked.max_bytes)
        if self._asked.max_blocks is not None:
            return ReadMaxFiles(self._asked.max_blocks)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        tally, spans = Tally(), []
        end = dict(start)
        for name, view in self._views().items():
            begin = max(start.get(name, view.first_seq), 1)
            behind = view.last_seq + 1
            anew = offsets.may_be_other(view, start, begin)
            if anew:
                what = f"stream {name} ends at {view.claimed_last}; {begin} was to be read next"
                plan.lose(self._asked, f"{what}: it was deleted and made anew", tally)
                begin = view.first_seq
            self._tell_waiting(view, begin)
            target = behind if self._target is None else min(self._target.get(name, 0), behind)
            if target > begin:
                spans.append(Span(view, begin, target))
            elif (name not in end and self._target is None) or anew:
                end |= offsets.reached(view, begin)
        for span, reached in self._shares.share(spans, limits_of(limit, self._asked)):
            end |= offsets.reached(span.view, reached)
        tell(tally, self._asked)
        if isinstance(limit, ReadMinRows) and self._target is None:
            ends = offsets.sequences(end)
            rows = sum(behind - start.get(name, behind) for name, behind in ends.items())
            return dict(start) if rows < limit.min_rows else end
        return end

    def _tell_waiting(self, view: StreamView, begin: int) -> None:
        """Once for each place that is waited for."""
        if begin > view.claimed_last + 1 and self._waiting.get(view.name) != begin:
            self._waiting[view.name] = begin
            print(f"jetstream: {offsets.waiting(view, begin)}", file=sys.stderr, flush=True)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return {name: view.last_seq + 1 for name, view in self._views().items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {name: view.last_seq + 1 for name, view in self._views().items()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        views, tally = self._views(), Tally()
        pieces = []
        for name, behind in sorted(offsets.sequences(end).items()):
            view = views.get(name)
            begin = start.get(name)
            if view is None or offsets.is_other(view, end):
                if begin is None or begin < behind:
                    plan.lose(self._asked, f"stream {name} was deleted", tally)
                continue
            if begin is None or begin > behind or offsets.is_other(view, start):
                begin = view.first_seq
            if begin < behind > view.claimed_last + 1:
                what = f"stream {name} ends at {view.claimed_last}; a batch up to {behind - 1}"
                what = f"{what} was planned: an archive or copy that lags behind"
                plan.lose(self._asked, what, tally)
            if begin < min(view.first_seq, behind):
                what = f"stream {name} begins at {view.first_seq}; {begin} was to be read next"
                plan.lose(self._asked, what, tally)
            span = (max(begin, view.first_seq), behind)
            if name in start:
                plan.lose_dropped(view, span, self._asked, tally)
            pieces += plan.pieces_of(view, span, self._asked, Predicates(), tally)
        tell(tally, self._asked)
        return partitions_of(pieces, self._asked)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._asked)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the server keeps what its limits say, not what we have read."""

    def stop(self) -> None:
        self._store = None
