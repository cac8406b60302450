"""DIRECT.GET requests for many messages: answered in slices, as fast as their requesters read.

One may ask for a whole stream. Each has its share of a turn; one whose requester has not written
what it got waits for it, so that nobody is closed as a slow consumer for what it asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.jetstream._outlet import is_backed_up

if TYPE_CHECKING:
    from server.core._account import Account
    from server.jetstream._hub import ConsumerHub

SEND_PHASE: Final = 5
BATCHES_MAX: Final = 1024
SHARE_MESSAGES: Final = 64
SHARE_BYTES: Final = 256 << 10
SHARES_A_TURN: Final = 4
LOOK_NS: Final = 2_000_000


@dataclass(eq=False, slots=True)
class Batch:
    """`answers` sends a message with each step and gives its size."""

    account: Account
    reply: str
    answers: Iterator[int]

    def send_share(self) -> bool:
        """Whether more is left."""
        sent_bytes = 0
        for sent, size in enumerate(self.answers, 1):
            sent_bytes += size
            if sent >= SHARE_MESSAGES or sent_bytes >= SHARE_BYTES:
                return True
        return False


class DirectBatches:
    """Those of one server that are under way: at most BATCHES_MAX, beyond which one is refused."""

    def __init__(self, hub: ConsumerHub, warn: Callable[[str], None]) -> None:
        self._hub = hub
        self._warn = warn
        self._turn = hub.broker.turn
        self._phase = self._turn.phase(SEND_PHASE, self._run)
        self._ready: deque[Batch] = deque()
        self._held: list[Batch] = []
        self._asked_again = False
        self.armed_ns: int | None = None

    def __len__(self) -> int:
        return len(self._ready) + len(self._held)

    @property
    def is_full(self) -> bool:
        return len(self) >= BATCHES_MAX

    def start(self, account: Account, reply: str, answers: Iterator[int]) -> None:
        self._ready.append(Batch(account, reply, answers))
        self._phase.mark()

    def close(self) -> None:
        """Nothing that waits is answered: its streams are about to be closed."""
        self._ready.clear()
        self._held.clear()
        self.armed_ns = None
        self._turn.forget(self._phase)

    def _run(self) -> None:
        """One share after the other. Without a loop nobody would ask again: all of them."""
        shares = SHARES_A_TURN
        while self._ready and (shares > 0 or not self._turn.has_loop):
            shares -= 1
            batch = self._ready.popleft()
            if is_backed_up(batch.account, batch.reply):
                self._held.append(batch)
            elif batch.account.has_interest(batch.reply) and self._has_more(batch):
                self._ready.append(batch)
        if self._held:
            self._hub.timers.arm(self, self._hub.broker.now_ns() + LOOK_NS)
        if self._ready and not self._asked_again:
            self._asked_again = True
            self._turn.later(self._again)

    def _has_more(self, batch: Batch) -> bool:
        try:
            return batch.send_share()
        except Exception as error:
            # What one of them asked for is no reason to leave the others without an answer.
            self._warn(f"A direct get failed: {error!r}")
            return False

    def _again(self) -> None:
        self._asked_again = False
        self._phase.mark()

    def tick(self, now_ns: int) -> None:
        """Those whose requesters had too much to read are looked at again."""
        self._ready.extend(self._held)
        self._held.clear()
        self._phase.mark()
