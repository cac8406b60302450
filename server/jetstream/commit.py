"""When stored messages become durable: one commit of the disk for all streams of a turn.

Phase 4 of a turn hands everything written in it to the data directory as one batch. When the disk
has it, `completed` moves each stream's durable mark and its answers leave. Streams in memory, and
all streams of a directory that syncs lazily, are released at the end of the turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from server.core._turn import Turn
from storage._blockhome import BlockHome
from storage._store import StreamStore

DISK_PHASE = 4

Settled = Callable[[str | None], None]


class Directory(Protocol):
    """What a commit asks of the data directory."""

    failure: str | None

    @property
    def settled_ticket(self) -> int: ...
    def commit(self) -> int: ...
    def poll(self) -> int: ...
    def sync(self) -> None: ...
    def maintain(self) -> None: ...


class Written(Protocol):
    """Who writes: the sink of a stream, the consumers' book."""

    in_memory: bool
    down: str | None

    @property
    def name(self) -> bytes: ...
    @property
    def store(self) -> StreamStore: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def durable_seq(self) -> int: ...
    def close_turn(self) -> None:
        """The turn's commit follows."""

    def release(self, seq: int) -> bool:
        """All up to `seq` is durable; whether it still waits for something."""


class Commit(Protocol):
    """What a sink asks of its commit."""

    def dirty(self, sink: Written) -> None: ...
    def broken(self, sink: Written, error: BaseException) -> None: ...


class LocalCommit:
    """The commit of a server that replicates nothing."""

    def __init__(
        self,
        turn: Turn,
        directory: Directory | None = None,
        log: Callable[[str, str], None] = lambda level, text: None,
        lazy: bool = False,
    ) -> None:
        self._turn = turn
        self._phase = turn.phase(DISK_PHASE, self.run)
        self._directory = directory
        self._log = log
        self._lazy = lazy
        self._dirty: list[Written] = []
        self._waiting: dict[Written, None] = {}
        self._sinks: set[Written] = set()
        self._asked: list[Settled] = []
        self._settling: deque[tuple[int, Settled]] = deque()
        self._failed = False
        self._why: str | None = None
        self.on_failure: Callable[[], None] = lambda: None

    def adopt(self, sink: Written) -> None:
        """A stream is opened."""
        self._sinks.add(sink)
        if self._failed and not sink.in_memory:
            sink.down = self.failure

    def mark(self) -> None:
        """Something else was written to the directory: a purge, a deletion."""
        self._phase.mark()

    def dirty(self, sink: Written) -> None:
        self._dirty.append(sink)
        self._phase.mark()

    def broken(self, sink: Written, error: BaseException) -> None:
        """An invariant or the machine: that stream stores nothing more, and says so."""
        sink.down = f"stream is down: {error}"
        self._log("error", f"JetStream stream {sink.name.decode()!r} is down: {error!r}")

    def when_settled(self, then: Settled) -> None:
        """Call `then` when what was changed up to now lasts, and what was erased is overwritten.

        Its argument is why that will never be, None when it is.
        """
        self._asked.append(then)
        self._phase.mark()

    def run(self) -> None:
        """The end of a turn."""
        dirty, self._dirty = self._dirty, []
        asked, self._asked = self._asked, []
        for sink in dirty:
            sink.close_turn()
        ticket = self._submit()
        self._settling.extend((ticket, then) for then in asked)
        for sink in dirty:
            if self._durable_seq(sink) < sink.last_seq and not self._failed:
                self._waiting[sink] = None
            else:
                self._release(sink)
        self._settle()

    def _submit(self) -> int:
        """The ticket that covers all that was written; 0: there is nothing to wait for."""
        if self._directory is None or self._failed:
            return 0
        try:
            return self._directory.commit()
        except OSError as error:
            self._fail(str(error))
            return 0

    def _settle(self) -> None:
        settled = 0 if self._directory is None else self._directory.settled_ticket
        while self._settling and (self._failed or self._settling[0][0] <= settled):
            _, then = self._settling.popleft()
            then(self._why)

    def _release(self, sink: Written) -> None:
        """What it waits for has perhaps come. Its trouble is its own: others are released too."""
        try:
            waits = sink.release(self._durable_seq(sink))
        except Exception as error:
            self._waiting.pop(sink, None)
            self.broken(sink, error)
            return
        if waits:
            self._waiting[sink] = None
        else:
            self._waiting.pop(sink, None)

    def _durable_seq(self, sink: Written) -> int:
        if sink.in_memory or (self._lazy and not self._failed):
            return sink.last_seq
        home: BlockHome = sink.store.home  # type: ignore[assignment]
        durable_seq = home.durable_seq
        return durable_seq if durable_seq > sink.durable_seq else sink.durable_seq

    def completed(self) -> None:
        """The disk has finished something: the loop calls it for the directory's descriptors."""
        assert self._directory is not None
        self._directory.poll()
        if self._directory.failure is not None and not self._failed:
            self._fail(self._directory.failure)
        for sink in list(self._waiting):
            if self._durable_seq(sink) > sink.durable_seq or self._failed:
                self._release(sink)
        self._settle()
        self._turn.run()

    def maintain(self) -> None:
        """Now and then: blocks that are mostly dead, or to be compressed, have their turn."""
        if self._directory is not None and not self._failed:
            self._directory.maintain()
            self._phase.mark()
            self._turn.run()

    def sync(self) -> None:
        """A lazy directory's interval is over: what was written becomes durable."""
        if self._directory is None or self._failed:
            return
        try:
            self._directory.sync()
        except OSError as error:
            self._fail(str(error))

    def forget(self, sink: Written) -> None:
        """The stream is closed."""
        self._sinks.discard(sink)
        self._waiting.pop(sink, None)
        if sink in self._dirty:
            self._dirty.remove(sink)

    def _fail(self, why: str) -> None:
        """What is not durable by now is never acknowledged; no stream on disk takes more."""
        self._failed, self._why = True, why
        for sink in self._sinks:
            if not sink.in_memory:
                sink.down = why
        self._log("error", f"JetStream stores nothing any more: {why}")
        self.on_failure()

    @property
    def failure(self) -> str | None:
        """Why nothing is stored on disk any more."""
        return self._why
