"""The streaming side: how far each micro-batch goes, in the offsets of `offsets.py`."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from typing import Any

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

from pyspark_jetstream import offsets, plan, reading, scan
from pyspark_jetstream.blockfile import Block
from pyspark_jetstream.directory import sequences_in
from pyspark_jetstream.options import EARLIEST, LATEST, Options, offset_for
from pyspark_jetstream.predicates import Predicates
from pyspark_jetstream.source import partitions_of, read_partition
from pyspark_jetstream.view import BlockView, StreamView

Offset = dict[str, int]
EVERYTHING = 1 << 62
SPARSE_SPAN = 4
"""So many sequences for a message, and a block is mostly gaps."""


class Limits:
    """How much one micro-batch may take, shared by the streams in their order."""

    def __init__(self, limit: ReadLimit, asked: Options) -> None:
        self.rows = self.bytes = self.blocks = EVERYTHING
        if isinstance(limit, ReadMaxRows):
            self.rows = limit.max_rows
        elif isinstance(limit, ReadMaxBytes):
            self.bytes = limit.max_bytes
        elif isinstance(limit, ReadMaxFiles):
            self.blocks = limit.max_files
        if not isinstance(limit, ReadAllAvailable):
            self.rows = min(self.rows, asked.max_offsets or EVERYTHING)
            self.bytes = min(self.bytes, asked.max_bytes or EVERYTHING)
            self.blocks = min(self.blocks, asked.max_blocks or EVERYTHING)

    def advance(self, view: StreamView, start: int, target: int) -> int:
        """How far, at most to `target`, one stream may be read now."""
        if self.rows == self.bytes == self.blocks == EVERYTHING:
            return target
        reached = start
        for block in view.blocks:
            if block.last_seq < reached:
                continue
            if block.first_seq >= target or self.blocks <= 0 or self.bytes <= 0 or self.rows <= 0:
                return min(max(reached, start), target) if block.first_seq < target else target
            first = max(reached, block.first_seq)
            last = min(self._end_within(view, block, first), target - 1)
            self.blocks -= 1
            reached = last + 1
            if last < block.last_seq:
                return reached
        return target

    def _end_within(self, view: StreamView, block: BlockView, first: int) -> int:
        """The last sequence of the block that may be read; at least one message.

        Where most sequences are gaps, messages are counted, or a skip of a billion would be as
        many micro-batches without a row as there are limits in it.
        """
        span = block.last_seq - block.first_seq + 1
        is_sparse = span > SPARSE_SPAN * max(block.messages, 1)
        per_one = max(block.data_end / (block.messages if is_sparse else span), 1.0)
        room = max(min(self.rows, int(self.bytes / per_one)), 1)
        if is_sparse:
            last, taken = end_of_messages(view, block, first, room)
        else:
            last = min(block.last_seq, first + room - 1)
            taken = last - first + 1
        self.rows -= taken
        self.bytes -= int(taken * per_one)
        return last


def end_of_messages(view: StreamView, block: BlockView, first: int, count: int) -> tuple[int, int]:
    """The sequence of the last of `count` messages from `first` on, and how many there are."""
    source = scan.open_source(block.location, False)
    with Block(source, view.salt, view.group, view.key) as opened:
        seqs = sequences_in(opened)
    start = bisect.bisect_left(seqs, first)
    behind = bisect.bisect_right(seqs, block.last_seq)
    if start + count >= behind:
        return block.last_seq, behind - start
    return seqs[start + count - 1], count


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process for the whole query; the views are looked at anew for each batch."""

    def __init__(self, asked: Options) -> None:
        self._asked = asked
        self._store: reading.Store | None = None
        self._target: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_asked": self._asked, "_store": None, "_target": None}

    def _views(self) -> Mapping[str, StreamView]:
        if self._store is None:
            self._store = reading.open_store(self._asked)
        return {view.name: view for view in self._store.views(self._asked.wants)}

    def initialOffset(self) -> Offset:  # noqa: N802
        found: Offset = {}
        for name, view in self._views().items():
            said = LATEST if self._asked.starting is None else self._asked.starting
            start = offset_for(said, view.account, view.stream)
            start = EARLIEST if start is None else start
            if 0 <= start < view.first_seq:
                plan.lose(self._asked, f"stream {name} begins at {view.first_seq}, not at {start}")
                start = EARLIEST
            if offsets.is_other(view, said):
                plan.lose(self._asked, f"stream {name} was deleted and made anew")
                start = EARLIEST
            found |= offsets.reached(view, plan.position(start, view))
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
        views = self._views()
        limits = Limits(limit, self._asked)
        end = dict(start)
        for name, view in views.items():
            begin = max(start.get(name, view.first_seq), 1)
            behind = view.last_seq + 1
            anew = offsets.is_other(view, start) or begin > view.claimed_last + 1
            if anew:
                what = f"stream {name} ends at {view.claimed_last}; {begin} was to be read next"
                plan.lose(self._asked, f"{what}: it was deleted and made anew")
                begin = view.first_seq
            target = behind if self._target is None else min(self._target.get(name, 0), behind)
            if target > begin:
                end |= offsets.reached(view, limits.advance(view, begin, target))
            elif (name not in end and self._target is None) or anew:
                end |= offsets.reached(view, begin)
        if isinstance(limit, ReadMinRows) and self._target is None:
            ends = offsets.sequences(end)
            rows = sum(behind - start.get(name, behind) for name, behind in ends.items())
            return dict(start) if rows < limit.min_rows else end
        return end

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        return {name: view.last_seq + 1 for name, view in self._views().items()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {name: view.last_seq + 1 for name, view in self._views().items()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        views = self._views()
        pieces = []
        for name, behind in sorted(offsets.sequences(end).items()):
            view = views.get(name)
            begin = start.get(name)
            if view is None or offsets.is_other(view, end):
                if begin is None or begin < behind:
                    plan.lose(self._asked, f"stream {name} was deleted")
                continue
            if begin is None or begin > behind or offsets.is_other(view, start):
                begin = view.first_seq
            if begin < min(view.first_seq, behind):
                plan.lose(
                    self._asked,
                    f"stream {name} begins at {view.first_seq}; {begin} was to be read next",
                )
            span = (max(begin, view.first_seq), behind)
            pieces += plan.pieces_of(view, span, self._asked, Predicates())
        return partitions_of(pieces, self._asked)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, reading.scan_of(self._asked))

    def commit(self, end: Offset) -> None:
        """Nothing to do: the server keeps what its limits say, not what we have read."""

    def stop(self) -> None:
        self._store = None
