"""The table of pending acknowledgements against its naive twin, and what an entry costs."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from server.jetstream._pending import PendingProbe
from tests.property.oracles.pending import NaivePending

MS = 1_000_000
WAITS = st.sampled_from([0, MS, 30 * MS, 200 * MS, 5_000 * MS, 60_000 * MS])


class Pending(RuleBasedStateMachine):
    """Sequences only grow, as they do where a consumer delivers what is new."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PendingProbe(100 * MS)
        self.twin = NaivePending()
        self.now_ns = 10_000 * MS
        self.last_seq = 0
        self.consumer_seq = 0

    def chosen(self, number: int) -> int:
        return sorted(self.twin.known)[number % len(self.twin.known)]

    @rule(gap=st.integers(1, 5), wait_ns=WAITS)
    def deliver_new(self, gap: int, wait_ns: int) -> None:
        self.last_seq += gap
        self.consumer_seq += 1
        arguments = (self.last_seq, self.consumer_seq, self.now_ns + wait_ns)
        assert self.table.delivered(*arguments) == self.twin.delivered(*arguments)

    @precondition(lambda self: self.twin.queue)
    @rule(wait_ns=WAITS)
    def deliver_again(self, wait_ns: int) -> None:
        self.consumer_seq += 1
        arguments = (self.twin.queue[0], self.consumer_seq, self.now_ns + wait_ns)
        assert self.table.delivered(*arguments) == self.twin.delivered(*arguments)

    @rule(seq=st.integers(0, 60))
    def settle(self, seq: int) -> None:
        assert self.table.settle(seq) == self.twin.settle(seq)

    @precondition(lambda self: any(each.pending for each in self.twin.known.values()))
    @rule(number=st.integers(0, 50), what=st.sampled_from(["requeue", "retire", "postpone"]))
    def change(self, number: int, what: str) -> None:
        pending = [seq for seq, each in sorted(self.twin.known.items()) if each.pending]
        seq = pending[number % len(pending)]
        for each in (self.table, self.twin):
            if what == "postpone":
                each.postpone(seq, self.now_ns + 700 * MS)
            else:
                getattr(each, what)(seq)

    def old(self) -> list[int]:
        """Those on the wheel that a change of waits has left."""
        timed = [seq for seq, each in sorted(self.twin.known.items()) if each.due_ns is not None]
        return [seq for seq in timed if self.table.is_on_old_wheel(seq)]

    def leave_old_wheel(self, seqs: list[int]) -> None:
        for seq in seqs:
            due_ns = self.twin.known[seq].due_ns
            assert due_ns is not None
            self.table.postpone(seq, due_ns)

    @rule(passed_ms=st.sampled_from([0, 1, 40, 300, 7_000, 90_000]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ns += passed_ms * MS
        self.leave_old_wheel(self.old())
        late = self.twin.due(self.now_ns - 2 * self.table.width_ns)
        told = self.table.take_due(self.now_ns)
        assert told == sorted(told)
        assert set(late) <= set(told) <= set(self.twin.due(self.now_ns))
        for seq in told:
            self.twin.take(seq)
            self.table.requeue(seq)
            self.twin.requeue(seq)

    @rule(wait_ms=st.sampled_from([1, 64, 1_000, 30_000]))
    def wait_changes(self, wait_ms: int) -> None:
        self.leave_old_wheel(self.old())
        self.table.change_wheel(wait_ms * MS)
        timed = [seq for seq, each in self.twin.known.items() if each.due_ns is not None]
        assert self.old() == sorted(timed)

    @rule(count=st.integers(1, 9))
    def some_leave_the_old_wheel(self, count: int) -> None:
        self.leave_old_wheel(self.old()[:count])

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.twin = NaivePending()

    @invariant()
    def equal(self) -> None:
        assert self.table.counts == self.twin.counts
        assert self.table.queue == self.twin.queue
        assert self.table.order == self.twin.order

    @invariant()
    def wakes_in_time(self) -> None:
        old = self.old()
        waiting = [
            each.due_ns
            for seq, each in self.twin.known.items()
            if each.due_ns is not None and seq not in old
        ]
        due_ns = self.table.next_due()
        assert (due_ns == 0) == (not waiting)
        if waiting:
            assert due_ns <= max(min(waiting), self.now_ns) + 2 * self.table.width_ns


TestPending = pytest.mark.feature("5.039", "5.042")(Pending.TestCase)
TestPending.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@pytest.mark.feature("5.042")
@pytest.mark.parametrize("seed", range(5))
def test_found_and_settled_while_the_index_grows(seed: int) -> None:
    """Settled ones leave entries that are used again before the old index is moved."""
    random = Random(seed)
    table, known, last_seq = PendingProbe(30_000 * MS), list[int](), 0
    for _ in range(4):
        for _ in range(random.choice((100, 3_000, 20_000))):
            last_seq += random.randint(1, 3)
            assert table.delivered(last_seq, last_seq, MS) == 0
            known.append(last_seq)
            while known and random.random() < 0.3:
                at = random.randrange(len(known))
                known[at], known[-1] = known[-1], known[at]
                assert table.settle(known[-1])
                assert not table.settle(known.pop())
        assert [seq for seq, _ in table.order] == sorted(known)
        if random.random() < 0.5:
            random.shuffle(known)
            assert all(table.settle(seq) for seq in known)
            known.clear()


def test_growth_holds_nobody_up() -> None:
    """A delivery moves a few slots of the index, and all have moved when it grows again."""
    table = PendingProbe(30_000 * MS)
    left, growths = 0, 0
    for seq in range(1, 300_001):
        table.delivered(seq, seq, seq)
        now_left = table.slots_to_move
        if now_left > left:
            assert left <= 8, f"a growth at {seq} had to move {left} slots at once"
            growths += 1
        else:
            assert left - now_left <= 8
        left = now_left
    assert growths >= 10


def test_a_million_cost_120_bytes_each() -> None:
    table = PendingProbe(30_000 * MS)
    for seq in range(1, 1_000_001):
        table.delivered(7 * seq, seq, seq)
    assert table.memory_bytes <= 120_000_000
