"""Brings something up to date with a data directory or archive, step by step, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from pyspark_jetstream import offsets, plan, reading, scan
from pyspark_jetstream.options import EARLIEST, Options, offset_for
from pyspark_jetstream.plan import Piece
from pyspark_jetstream.predicates import Predicates
from pyspark_jetstream.scan import Tally
from pyspark_jetstream.view import StreamView

STEP_BYTES = 1 << 30


@dataclass
class Step:
    """Some pieces to read, and where that leads."""

    pieces: list[Piece]
    offsets: dict[str, int]


class Follower:
    """Plans the steps from offsets reached to what is there now."""

    def __init__(self, asked: Options, tally: Tally, step_bytes: int = STEP_BYTES) -> None:
        self.asked, self.tally = asked, tally
        self._step_bytes = asked.max_bytes or step_bytes
        self._store = reading.open_store(asked)

    def views(self) -> list[StreamView]:
        return self._store.views(self.asked.wants)

    def steps(self, reached: dict[str, int]) -> Iterator[Step]:
        """Each to be committed before the next is taken."""
        for view in self.views():
            begin = self._begin(view, reached)
            behind = max(begin, view.last_seq + 1)
            pieces = plan.pieces_of(view, (begin, behind), self.asked, Predicates(), self.tally)
            gathered: list[Piece] = []
            weight = 0
            for piece in pieces:
                gathered.append(piece)
                weight += piece.weight
                if weight >= self._step_bytes:
                    yield Step(gathered, offsets.reached(view, piece.last + 1))
                    gathered, weight = [], 0
            if gathered or reached.get(view.name, 0) <= view.last_seq:
                yield Step(gathered, offsets.reached(view, behind))

    def _begin(self, view: StreamView, offsets_reached: dict[str, int]) -> int:
        reached = offsets_reached.get(view.name)
        if reached is None:
            begin = self._first(view, is_later=bool(offsets_reached))
            if begin > view.first_seq:
                self._lose_dropped(view, begin)
            return begin
        if offsets.may_be_other(view, offsets_reached, reached):
            what = f"stream {view.name} ends at {view.claimed_last}; {reached} was to be read next"
            plan.lose(self.asked, f"{what}: it was deleted and made anew", self.tally)
            return view.first_seq
        if reached > view.claimed_last + 1:
            self.tally.note(offsets.waiting(view, reached))
        if reached < view.first_seq:
            what = f"stream {view.name} begins at {view.first_seq}; {reached} was to be read next"
            plan.lose(self.asked, what, self.tally)
        begin = max(reached, view.first_seq)
        self._lose_dropped(view, begin)
        return begin

    def _lose_dropped(self, view: StreamView, begin: int) -> None:
        plan.lose_dropped(view, (begin, view.last_seq + 1), self.asked, self.tally)

    def _first(self, view: StreamView, is_later: bool) -> int:
        """Of a stream that was never read. One that appears later begins at its first message."""
        said = EARLIEST if self.asked.starting is None else self.asked.starting
        if is_later and isinstance(said, int):
            said = EARLIEST
        start = offset_for(said, view.account, view.stream)
        start = EARLIEST if start is None else start
        if 0 <= start < view.first_seq:
            what = f"stream {view.name} begins at {view.first_seq}, not at {start}"
            plan.lose(self.asked, what, self.tally)
        return max(plan.position(start, view), view.first_seq)

    def starting(self, reached: dict[str, int]) -> dict[str, int]:
        """`reached`, and where the streams that are there now and were never read begin."""
        found = dict(reached)
        if self.asked.starting in (None, EARLIEST):
            return found  # theirs may be deleted before anybody gets there
        for view in self.views():
            if view.name not in reached:
                found |= offsets.reached(view, self._first(view, is_later=bool(reached)))
        return found

    def batches(self, step: Step) -> Iterator[tuple[Piece, pa.RecordBatch]]:
        how = reading.scan_of(self.asked)
        for piece in step.pieces:
            for batch in scan.read_pieces([piece], how, self.tally):
                yield piece, batch
