"""How far a micro-batch goes: its limits, and what each stream gets of them."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
)

from pyspark_jetstream import scan
from pyspark_jetstream.blockfile import Block
from pyspark_jetstream.directory import sequences_in
from pyspark_jetstream.errors import BlockDamaged
from pyspark_jetstream.options import Options
from pyspark_jetstream.view import BlockView, StreamView

EVERYTHING = 1 << 62
SPARSE_SPAN = 4
"""So many sequences for a message, and a block is mostly gaps."""


@dataclass
class Span:
    """What one stream has to read: from `begin` on, before `target`."""

    view: StreamView
    begin: int
    target: int


@dataclass(frozen=True)
class Amount:
    """Messages, bytes and blocks."""

    rows: int = EVERYTHING
    bytes: int = EVERYTHING
    blocks: int = EVERYTHING

    def is_used_up(self) -> bool:
        return min(self.rows, self.bytes, self.blocks) <= 0

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.rows - other.rows, self.bytes - other.bytes, self.blocks - other.blocks)


def limits_of(limit: ReadLimit, asked: Options) -> Amount:
    """How much one micro-batch may take."""
    if isinstance(limit, ReadAllAvailable):
        return Amount()
    rows = limit.max_rows if isinstance(limit, ReadMaxRows) else EVERYTHING
    size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else EVERYTHING
    blocks = limit.max_files if isinstance(limit, ReadMaxFiles) else EVERYTHING
    return Amount(
        min(rows, asked.max_offsets or EVERYTHING),
        min(size, asked.max_bytes or EVERYTHING),
        min(blocks, asked.max_blocks or EVERYTHING),
    )


class Shares:
    """Gives each stream its part of the limits, by what it has left; the rest to those behind it.

    Where there is not one message for each, those that got nothing are the first the next time.
    """

    def __init__(self) -> None:
        self._first = ""

    def share(self, spans: list[Span], limits: Amount) -> Iterator[tuple[Span, int]]:
        """How far each may be read now."""
        if limits == Amount():
            yield from ((span, span.target) for span in spans)
            return
        spans = sorted(spans, key=lambda span: (span.view.name < self._first, span.view.name))
        backlogs = [backlog(span) for span in spans]
        ahead = Amount(
            sum(own.rows for own in backlogs),
            sum(own.bytes for own in backlogs),
            sum(own.blocks for own in backlogs),
        )
        self._first = ""
        for span, own in zip(spans, backlogs, strict=True):
            if limits.is_used_up():
                self._first = span.view.name
                return
            room = part(limits, own, ahead)
            reached, rest = advance(span, room)
            limits, ahead = limits - (room - rest), ahead - own
            yield span, reached


def backlog(span: Span) -> Amount:
    """About what is to be read, as if messages were spread evenly."""
    rows = size = 0.0
    blocks = 0
    for block in span.view.blocks:
        first, last = max(block.first_seq, span.begin), min(block.last_seq, span.target - 1)
        if first <= last:
            share = (last - first + 1) / (block.last_seq - block.first_seq + 1)
            rows, size = rows + block.messages * share, size + block.data_end * share
            blocks += 1
    return Amount(int(rows), int(size), blocks)


def part(limits: Amount, own: Amount, ahead: Amount) -> Amount:
    """At least one message of one block."""

    def of(limit: int, own: int, ahead: int) -> int:
        return limit if limit > EVERYTHING // 2 else max(limit * own // max(ahead, 1), 1)

    return Amount(
        of(limits.rows, own.rows, ahead.rows),
        of(limits.bytes, own.bytes, ahead.bytes),
        of(limits.blocks, own.blocks, ahead.blocks),
    )


def advance(span: Span, room: Amount) -> tuple[int, Amount]:
    """How far one stream may be read now, and what is left of the room."""
    reached = span.begin
    for block in span.view.blocks:
        if block.last_seq < reached:
            continue
        if block.first_seq >= span.target:
            return span.target, room
        if room.is_used_up():
            return reached, room
        first = max(reached, block.first_seq)
        last, taken = end_within(span.view, block, first, room)
        room = room - taken
        reached = min(last + 1, span.target)
        if last < block.last_seq:
            return reached, room
    return span.target, room


def end_within(view: StreamView, block: BlockView, first: int, room: Amount) -> tuple[int, Amount]:
    """The last sequence of the block that may be read; at least one message.

    Where most sequences are gaps, messages are counted, or a skip of a billion would be as
    many micro-batches without a row as there are limits in it.
    """
    span = block.last_seq - block.first_seq + 1
    is_sparse = span > SPARSE_SPAN * max(block.messages, 1)
    per_one = max(block.data_end / (block.messages if is_sparse else span), 1.0)
    count = max(min(room.rows, int(room.bytes / per_one)), 1)
    if is_sparse:
        last, taken = end_of_messages(view, block, first, count)
    else:
        last = min(block.last_seq, first + count - 1)
        taken = last - first + 1
    return last, Amount(taken, int(taken * per_one), 1)


def end_of_messages(view: StreamView, block: BlockView, first: int, count: int) -> tuple[int, int]:
    """The sequence of the last of `count` messages from `first` on, and how many there are.

    A block that cannot be asked is taken whole: whoever reads it tells what is wrong with it.
    """
    try:
        source = scan.open_source(block.location, False)
        with Block(source, view.salt, view.group, view.key) as opened:
            seqs = sequences_in(opened)
    except (FileNotFoundError, BlockDamaged):
        return block.last_seq, block.messages
    start = bisect.bisect_left(seqs, first)
    behind = bisect.bisect_right(seqs, block.last_seq)
    if start + count >= behind:
        return block.last_seq, behind - start
    return seqs[start + count - 1], count
