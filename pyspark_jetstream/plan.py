"""From views and options to pieces of blocks, and from pieces to partitions."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark_jetstream.errors import DataLoss
from pyspark_jetstream.options import (
    EARLIEST,
    LATEST,
    PARTITION_BYTES,
    PARTITION_BYTES_MIN,
    PARTITIONS_WANTED,
    PROCESSORS,
    Options,
    offset_for,
)
from pyspark_jetstream.predicates import Predicates
from pyspark_jetstream.view import BlockView, StreamView

if TYPE_CHECKING:
    from pyspark_jetstream.scan import Tally

Range = tuple[int, int]
"""First sequence, and the one behind the last."""


@dataclass(frozen=True)
class Piece:
    """Some sequences of one block, and all that is needed to read them anywhere."""

    location: str
    account: str
    stream: str
    group: int
    salt: int
    key: bytes | None
    number: int
    first: int
    last: int
    sealed: bool
    whole: bool  # every record is wanted, as far as sequences and times tell
    end: int  # of the records of the unframed block, as far as is known; for want of a footer
    weight: int
    dead: bytes  # compressed

    def dead_seqs(self) -> bytes:
        return zlib.decompress(self.dead) if self.dead else b""


def resolve(view: StreamView, options: Options, starting: int, tally: Tally | None = None) -> Range:
    """The range of one stream for a batch; `starting` is what holds when nothing was said."""
    said = options.starting
    start = starting if said is None else offset_for(said, view.account, view.stream)
    end = offset_for(options.ending, view.account, view.stream)
    behind = view.last_seq + 1
    explicit = start is not None and start >= 0
    start = position(EARLIEST if start is None else start, view)
    end = position(LATEST if end is None else end, view)
    if explicit and start < view.first_seq:
        lose(options, f"stream {view.name} begins at {view.first_seq}, not at {start}", tally)
    span = max(start, view.first_seq), min(end, behind)
    if explicit:
        lose_dropped(view, span, options, tally)
    return span


def position(offset: int, view: StreamView) -> int:
    if offset == EARLIEST:
        return view.first_seq
    return view.last_seq + 1 if offset == LATEST else offset


def lose(
    options: Options, what: str, tally: Tally | None = None, *, is_damage: bool = False
) -> None:
    """Refused, or else told to whoever counts."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}: rows are gone (failOnDataLoss=false goes on without them)")
    if tally is not None:
        tally.lose(what, is_damage)


def lose_dropped(
    view: StreamView, span: Range, options: Options, tally: Tally | None = None
) -> None:
    """For who reads on from a sequence; who takes what there is has lost nothing, as elsewhere."""
    begin, behind = span
    for low, high in view.dropped:
        if low < behind and high >= begin:
            what = f"stream {view.name} goes on at {high + 1}, not at {max(low, begin)}: its limits"
            lose(options, f"{what} took these before they were archived", tally)


def pieces_of(
    view: StreamView,
    span: Range,
    options: Options,
    predicates: Predicates,
    tally: Tally | None = None,
) -> list[Piece]:
    """The blocks that may hold rows of the range, each whole or clipped."""
    first, last = span[0], span[1] - 1
    for low, high in view.lost:
        if low <= last and high >= first:
            what = f"stream {view.name} lost sequences {low} to {high} to damage"
            lose(options, what, tally, is_damage=True)
    for number, low, high in view.missing:
        if low <= last and high >= first:
            what = f"block {number:016x} of stream {view.name} ({low} to {high}) has no file"
            lose(options, what, tally, is_damage=True)
    for broken in view.damaged:
        if broken.first_seq <= last and broken.last_seq >= first:
            what = f"stream {view.name}: {broken.words}"
            lose(options, what, tally, is_damage=True)
    low_ns = max(options.low_ns, predicates.low_ns)
    high_ns = min(options.high_ns, predicates.high_ns)
    first, last = max(first, predicates.first), min(last, predicates.last)
    accepts = predicates.accepts(options.subject)
    found = []
    for block in view.blocks:
        if block.first_seq > last or block.last_seq < first or not block.messages:
            continue
        if block.low_ns > high_ns or block.high_ns < low_ns:
            continue
        if (
            accepts is not None
            and block.subjects is not None
            and not any(accepts(subject) for subject in block.subjects)
        ):
            continue
        one = piece(view, block, max(first, block.first_seq), min(last, block.last_seq))
        if block.low_ns < low_ns or block.high_ns > high_ns:
            one = replace(one, whole=False)
        found.append(one)
    return found


def piece(view: StreamView, block: BlockView, first: int, last: int) -> Piece:
    share = (last - first + 1) / (block.last_seq - block.first_seq + 1)
    return Piece(
        location=block.location,
        account=view.account,
        stream=view.stream,
        group=view.group,
        salt=view.salt,
        key=view.key,
        number=block.number,
        first=first,
        last=last,
        sealed=block.sealed,
        end=block.data_end,
        whole=first == block.first_seq and last == block.last_seq,
        weight=max(int(block.data_end * share), 1),
        dead=zlib.compress(block.dead, 1) if block.dead else b"",
    )


def partition(pieces: Sequence[Piece], min_partitions: int | None) -> list[list[Piece]]:
    """Neighbours together, about as much in each; `min_partitions`: fewer together, or split."""
    total = sum(piece.weight for piece in pieces)
    count = max(min(total // PARTITION_BYTES_MIN, PARTITIONS_WANTED), -(-total // PARTITION_BYTES))
    if count > PROCESSORS:  # no processor is to be idle while another has one more
        count = -(-count // PROCESSORS) * PROCESSORS
    count = max(count, min_partitions or 1)
    if min_partitions is not None:
        pieces = [
            part for piece in pieces for part in split(piece, -(-piece.weight * count // total))
        ]
    return packed(pieces, count)


def packed(pieces: Sequence[Piece], count: int) -> list[list[Piece]]:
    """`count` runs of neighbours, or as many as there are pieces."""
    runs: list[list[Piece]] = []
    left, weight = sum(piece.weight for piece in pieces), 0
    goal = left / count
    for at, one in enumerate(pieces):
        is_full = weight + one.weight / 2 > goal
        is_last_chance = len(pieces) - at <= count - len(runs)
        if not runs or (len(runs) < count and (is_full or is_last_chance)):
            left -= weight
            goal = left / (count - len(runs))
            runs.append([])
            weight = 0
        runs[-1].append(one)
        weight += one.weight
    return runs


def split(whole: Piece, count: int) -> Iterable[Piece]:
    """`count` parts with about as many sequences each."""
    sequences = whole.last - whole.first + 1
    count = max(min(count, sequences), 1)
    for at in range(count):
        first = whole.first + sequences * at // count
        last = whole.first + sequences * (at + 1) // count - 1
        weight = max(whole.weight // count, 1)
        share = replace(whole, first=first, last=last, weight=weight, whole=False)
        yield share if count > 1 else whole
