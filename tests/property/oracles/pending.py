"""The naive twin of `_pending.PendingTable`: a dictionary, and lists that are sorted when asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Known:
    consumer_seq: int
    due_ns: int | None
    redeliveries: int = 0
    pending: bool = True
    counted: bool = False


class NaivePending:
    def __init__(self) -> None:
        self.known: dict[int, Known] = {}
        self.queue: list[int] = []

    def delivered(self, seq: int, consumer_seq: int, due_ns: int) -> int:
        found = self.known.get(seq)
        if found is None:
            self.known[seq] = Known(consumer_seq, due_ns)
            return 0
        self._leave(seq)
        found.redeliveries += 1
        found.counted = True
        found.due_ns = due_ns
        return found.redeliveries

    def settle(self, seq: int) -> bool:
        if seq not in self.known:
            return False
        self._leave(seq)
        del self.known[seq]
        return True

    def retire(self, seq: int) -> None:
        self._leave(seq)
        self.known[seq].pending = False
        self.known[seq].counted = True

    def requeue(self, seq: int) -> None:
        if seq not in self.queue:
            self._leave(seq)
            self.queue.append(seq)

    def postpone(self, seq: int, due_ns: int) -> None:
        self._leave(seq)
        self.known[seq].due_ns = due_ns

    def due(self, now_ns: int) -> list[int]:
        """All that are overdue; the table may tell them up to its width later."""
        return sorted(
            seq
            for seq, each in self.known.items()
            if each.due_ns is not None and each.due_ns <= now_ns
        )

    def take(self, seq: int) -> None:
        self.known[seq].due_ns = None

    def _leave(self, seq: int) -> None:
        self.known[seq].due_ns = None
        if seq in self.queue:
            self.queue.remove(seq)

    @property
    def order(self) -> list[tuple[int, int]]:
        return sorted((seq, each.consumer_seq) for seq, each in self.known.items() if each.pending)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        known = self.known.values()
        return (
            len(self.known),
            sum(each.pending for each in known),
            sum(each.counted for each in known),
            len(self.queue),
        )
