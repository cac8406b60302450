from collections.abc import Callable
from typing import Protocol

from server.core._sink import Sink
from server.core._turn import Turn
from storage._store import StreamStore

class Directory(Protocol):
    """What a commit asks of the data directory."""

    failure: str | None

    @property
    def settled_ticket(self) -> int: ...
    @property
    def is_busy(self) -> bool: ...
    @property
    def congested(self) -> bool: ...
    @property
    def written_ticket(self) -> int: ...
    def commit(self) -> int: ...
    def commit_lazily(self) -> int: ...
    def poll(self) -> int: ...
    def hurry(self) -> None: ...
    def catch_up(self) -> None: ...
    def sync(self) -> None: ...
    def maintain(self) -> None: ...

class Writer(Sink):
    """Who writes to a store: the sink of a stream, the consumers' book."""

    store: StreamStore | None
    name: bytes
    in_memory: bool
    down: str | None
    durable_seq: int
    def __init__(self, name: bytes, store: StreamStore | None, in_memory: bool) -> None: ...
    @property
    def last_seq(self) -> int:
        """The last sequence that was accepted, durable or not."""
    def close_turn(self) -> None:
        """The turn's commit follows."""
    def release(self, seq: int) -> bool:
        """All up to `seq` is durable; whether it still waits for something."""

class LocalCommit:
    """The commit of a server that replicates nothing."""

    failure: str | None
    """Why nothing is stored on disk any more."""
    stopped: dict[Writer, str]
    """Those that are down on their own, and why."""
    on_failure: Callable[[], None] | None
    ask_later: Callable[[float, Callable[[], None]], object] | None
    """A loop's timer. Without one nothing is put off."""
    def __init__(
        self,
        turn: Turn,
        directory: Directory | None = None,
        log: Callable[[str, str], None] | None = None,
        lazy: bool = False,
    ) -> None: ...
    def adopt(self, writer: Writer) -> None:
        """A stream is opened."""
    def close(self) -> None:
        """Nothing is handed to the disk any more, and nobody is told of anything."""
    def forget(self, writer: Writer) -> None:
        """The stream is closed."""
    def mark(self) -> None:
        """Something else was written to the directory: a purge, a deletion."""
    def dirty(self, writer: Writer) -> None: ...
    def broken(self, writer: Writer, error: BaseException) -> None: ...
    def when_settled(self, then: Callable[[str | None], None]) -> None:
        """Call `then` when what was changed up to now lasts, and what was erased is overwritten.

        Its argument is why that will never be, None when it is.
        """
    def run(self) -> None: ...
    def completed(self) -> None:
        """The disk has finished something: the loop calls it for the directory's descriptors."""
    def catch_up(self) -> None:
        """At each tick: what waits for more of its kind waits no longer."""
    def maintain(self) -> None: ...
    def sync(self) -> None: ...
