"""Reads pieces of blocks as Arrow batches: what runs in an executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from pyspark_jetstream import columns
from pyspark_jetstream._decode import Damage, Decoder, Encrypted, open_records
from pyspark_jetstream._walk import has_encrypted
from pyspark_jetstream.blockfile import HEAD_BYTES, Block, Index, LocalSource, Source
from pyspark_jetstream.columns import BatchMaker, Column
from pyspark_jetstream.committed import TORN_PAUSES_S
from pyspark_jetstream.errors import BlockDamaged, DataLoss, NotUsable
from pyspark_jetstream.plan import Piece
from pyspark_jetstream.predicates import Predicates
from pyspark_jetstream.sealed import KEY_ADVICE, open_sealed

END = 1 << 32
"""No offset in a block is as high."""
MOVES_MAX = 4


@dataclass(frozen=True)
class Scan:
    """What to make of the pieces; plain data, so that it travels."""

    columns: tuple[Column, ...]
    predicates: Predicates = field(default_factory=Predicates)
    subject: tuple[str, ...] = ()
    low_ns: int = -(1 << 63)
    high_ns: int = (1 << 63) - 1
    batch_bytes: int = 8 << 20
    fail_on_data_loss: bool = True
    include_deleted: bool = False


@dataclass
class Tally:
    """What a reading left out because it did not hold, and what it cost."""

    damaged: int = 0
    vanished: int = 0
    lost: int = 0
    rows: int = 0
    bytes_read: int = 0
    notes: list[str] = field(default_factory=list)

    def words(self) -> str:
        """Nothing when nothing was left out and nothing has to be told."""
        head = ""
        if self.damaged or self.vanished or self.lost:
            head = f"left out: {self.damaged} that did not hold, {self.vanished} blocks that "
            head += f"were gone, {self.lost} ranges that were gone before"
        return "\n  ".join(filter(None, [head, *self.notes]))

    def lose(self, what: str, is_damage: bool) -> None:
        """Rows that were not there when the reading was planned."""
        if is_damage:
            self.damaged += 1
        else:
            self.lost += 1
        self.note(what)

    def add(self, other: Tally) -> None:
        """What somebody else left out."""
        self.damaged += other.damaged
        self.vanished += other.vanished
        self.lost += other.lost
        for what in other.notes:
            self.note(what)

    def note(self, what: str) -> None:
        if len(self.notes) < 100:
            self.notes.append(what)


Opener = Callable[[str, bool], Source]
"""(location, whether all of it will be read)"""


class CountedSource:
    """A source that tells the tally what was read."""

    def __init__(self, inner: Source, tally: Tally) -> None:
        self._inner, self._tally = inner, tally
        self.name, self.size = inner.name, inner.size

    def read(self, start: int, length: int) -> bytes:
        content = self._inner.read(start, length)
        self._tally.bytes_read += len(content)
        return content

    def close(self) -> None:
        self._inner.close()


def open_source(location: str, whole: bool) -> Source:
    if "://" in location:
        from pyspark_jetstream.objects import ObjectSource

        return ObjectSource(location, whole)
    return LocalSource(location)


def read_pieces(
    pieces: list[Piece], scan: Scan, tally: Tally | None = None, opener: Opener = open_source
) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        yield from PieceReader(piece, scan, tally or Tally(), opener).batches()


class PieceReader:
    """Reads one piece, patient with a block that was changed or removed meanwhile."""

    def __init__(self, piece: Piece, scan: Scan, tally: Tally, opener: Opener) -> None:
        self.piece, self.scan, self.tally = piece, scan, tally
        self._opener = opener
        self._accepts = scan.predicates.accepts(scan.subject)
        self._low_ns = max(scan.low_ns, scan.predicates.low_ns)
        self._high_ns = min(scan.high_ns, scan.predicates.high_ns)
        self._maker = BatchMaker(scan.columns, piece.account, piece.stream)

    def batches(self) -> Iterator[pa.RecordBatch]:
        first = self.piece.first
        moves = 0
        pauses_s = iter(TORN_PAUSES_S)
        tolerant = False
        while True:
            try:
                for decoder, batch in self._read(first, tolerant):
                    first = decoder.last_seen + 1
                    yield batch
                return
            except FileNotFoundError:
                moves += 1
                now = self._successor() if moves <= MOVES_MAX else None
                if now is None:
                    self._vanished()
                    return
                self.piece = now
            except BlockDamaged as failed:
                if tolerant:
                    self._skip(failed)
                    return
                # Once more: a secure erase may be writing just here.
                pause_s = next(pauses_s, None)
                if pause_s is not None:
                    time.sleep(pause_s)
                elif self.scan.fail_on_data_loss:
                    raise
                else:
                    tolerant = True

    def _read(self, first: int, tolerant: bool) -> Iterator[tuple[Decoder, pa.RecordBatch]]:
        piece = self.piece
        all_of_it = piece.whole and self._accepts is None
        source = CountedSource(self._opener(piece.location, all_of_it), self.tally)
        with Block(source, piece.salt, piece.group, piece.key, piece.number) as block:
            index = self._index(block, first, tolerant)
            if not self._may_hold(block, tolerant):
                return
            start, end = HEAD_BYTES, 0 if block.footer is not None else piece.end
            if index is not None:
                span = self._span(block, index, first)
                if span is None:
                    return
                start, end = span
            for run in block.runs(start, end, self._skip if tolerant else None):
                for base, content in self._opened(block, *run, index, tolerant):
                    yield from self._decode(block, base, content, first, index, tolerant)

    def _opened(
        self,
        block: Block,
        base: int,
        content: bytes,
        index: Index | None,
        tolerant: bool,
    ) -> Iterator[tuple[int, bytes]]:
        """The run as it is, or its records decrypted, in parts between those that do not hold."""
        # Where the first record does not hold, nothing tells whether the others are encrypted.
        if self.piece.key is None or not (tolerant or has_encrypted(content)):
            yield base, content
            return
        at: int | None = 0
        while at is not None:
            opened, behind = self._open(block, content, at)
            yield base + at, opened
            if behind == len(content):
                return
            failed = BlockDamaged(block.source.name, base + behind, "the record does not hold")
            if not tolerant:
                raise failed
            self._skip(failed)
            following = index.offset_after(base + behind) if index is not None else None
            at = None if following is None else following - base
            if at is not None and at >= len(content):
                return

    def _index(self, block: Block, first: int, tolerant: bool) -> Index | None:
        """When it saves reading, or to step over damage; None when neither or not to be had."""
        if self.piece.whole and first == self.piece.first and not tolerant:
            return None
        try:
            return block.index()
        except BlockDamaged as failed:
            if not tolerant:
                raise
            self._skip(failed)
            return None

    def _span(self, block: Block, index: Index, first: int) -> tuple[int, int] | None:
        """Bytes from which and up to which to read, 0 for the end of them all; None: nothing."""
        slot, behind = block.slots_within(self._low_ns, self._high_ns)
        start = max(index.offset_from(first) or END, index.offset_at(slot) or END)
        ends = (index.offset_from(self.piece.last + 1), index.offset_at(behind))
        end = min((offset for offset in ends if offset is not None), default=0)
        return None if start == END or 0 < end <= start else (start, end)

    def _may_hold(self, block: Block, tolerant: bool) -> bool:
        """Ask the footer's subjects before reading the records."""
        if self._accepts is None or block.footer is None:
            return True
        try:
            subjects = block.subjects()
        except BlockDamaged as failed:
            if not tolerant:
                raise
            self._skip(failed)
            return True
        return subjects is None or any(self._accepts(subject) for subject in subjects)

    def _decode(
        self,
        block: Block,
        base: int,
        content: bytes,
        first: int,
        index: Index | None,
        tolerant: bool,
    ) -> Iterator[tuple[Decoder, pa.RecordBatch]]:
        decoder = Decoder(
            content,
            self.piece.salt,
            base=base,
            first=first,
            last=self.piece.last,
            low_ns=self._low_ns,
            high_ns=self._high_ns,
            dead=self.piece.dead_seqs(),
            accepts=self._accepts,
            columns=columns.needs(self.scan.columns),
            batch_bytes=self.scan.batch_bytes,
            tolerant=tolerant,
            show_dead=self.scan.include_deleted,
            known=index.offset_after if index is not None else None,
        )
        try:
            while (batch := self._maker.next_batch(decoder)) is not None:
                self.tally.rows += batch.num_rows
                yield decoder, batch
        except Encrypted:
            name = block.source.name
            raise NotUsable(f"{name} has encrypted records: {KEY_ADVICE}") from None
        except Damage as failed:
            raise BlockDamaged(block.source.name, failed.offset, failed.reason) from None
        if decoder.damaged and decoder.first_damage is not None:
            self._skip(BlockDamaged(block.source.name, *decoder.first_damage), decoder.damaged)

    def _open(self, block: Block, content: bytes, at: int) -> tuple[bytes, int]:
        key, name = self.piece.key, block.source.name
        assert key is not None
        return open_records(
            content,
            self.piece.salt,
            at,
            self.piece.last,
            lambda cipher, head, body: open_sealed(cipher, key, body, head, name),
        )

    def _skip(self, failed: BlockDamaged, count: int = 1) -> None:
        self.tally.damaged += count
        self.tally.note(str(failed))

    def _successor(self) -> Piece | None:
        """Where an archive has the block now."""
        from pyspark_jetstream import archive

        in_archive = "://" in self.piece.location or "-" in Path(self.piece.location).name
        return archive.successor(self.piece) if in_archive else None

    def _vanished(self) -> None:
        """Gone since planning: deleted one by one is as it should be, dropped is a loss."""
        piece = self.piece
        what = (
            f"block {piece.location} of stream {piece.account}/{piece.stream} "
            f"(sequences {piece.first} to {piece.last}) was removed between planning and reading"
        )
        if self.scan.fail_on_data_loss and not deleted_one_by_one(piece):
            raise DataLoss(f"{what}; failOnDataLoss=false goes on without it")
        self.tally.vanished += 1
        self.tally.note(what)


def deleted_one_by_one(piece: Piece) -> bool:
    """Whether the stream still goes back further than this block that is gone."""
    from pyspark_jetstream.directory import Directory

    if "://" in piece.location:
        return False
    try:
        views = Directory(str(Path(piece.location).parent)).views(with_names=False)
    except (NotUsable, OSError):
        return False
    return bool(views) and views[0].group == piece.group and views[0].first_seq <= piece.first


__all__ = ["PieceReader", "Scan", "Tally", "read_pieces"]
