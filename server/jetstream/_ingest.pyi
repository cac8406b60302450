from collections.abc import Callable, Iterable
from typing import Any, Protocol

from server.core._account import Account
from server.core._subjectplan import SubjectPlan
from server.core._sublist import Sublist
from server.jetstream._answering import Answering
from server.jetstream._dedupe import DedupeWindow
from storage._store import StreamStore

class Usage:
    """How many bytes messages of one kind of storage take, of an account or of the server."""

    parent: Usage | None
    used: int
    max: int
    def __init__(self, max: int = -1, parent: Usage | None = None) -> None: ...

class Commit(Protocol):
    """What a sink asks of its commit."""

    def dirty(self, writer: Any, /) -> None: ...
    def broken(self, writer: Any, error: BaseException, /) -> None: ...

class StreamSink(Answering):
    """A stream's ears: checks and stores, and answers when what it stored is durable."""

    window: DedupeWindow
    usage: Usage | None
    interest: Sublist | None
    skip_unwanted: bool
    all_unusual: bool
    renames: SubjectPlan | None
    """What subjects become before they are stored."""
    allow_rollup: bool
    """... and nobody but the store has to know of one."""
    on_rollup: Callable[[int], object] | None
    """Called with how many messages stay of all, 1 or 0."""
    ttls: dict[bytes, int]
    """Nanoseconds by the text of the header: those that are taken as they are."""
    sealed: bool
    message_bytes_max: int
    waiting_messages_max: int
    waiting_bytes_max: int
    answer_bytes_max: int
    """Of answers that wait until something is durable."""
    on_first_id: Callable[[], object] | None
    """Called when the window had no ids and has one."""
    shown_seq: int
    """The last one that may be shown: durable, or left out by a purge."""
    listeners: list[Callable[[int, int], None]]
    """`on_stored` is called while this is not empty..."""
    told: bool
    """... and always when this is set, as it is at first."""
    watched: bool
    """Somebody may want to know soon when a message is durable, though no publisher asks."""
    waiting_messages: int
    waiting_bytes: int
    def __init__(
        self,
        account: Account,
        store: StreamStore,
        name: str,
        commit: Commit,
        publisher: Callable[[bytes, bytes, bytes, bytes], None],
        on_stored: Callable[[int, int], None],
        *,
        in_memory: bool,
        domain: str = "",
        window_ns: int = 0,
    ) -> None: ...
    @property
    def account_name(self) -> str: ...
    @property
    def last_message_id(self) -> bytes: ...
    @last_message_id.setter
    def last_message_id(self, message_id: bytes) -> None: ...
    @property
    def now_ns(self) -> int:
        """The time of the messages of this turn."""
    @property
    def subjects(self) -> list[str]: ...
    def listen(self, subjects: Iterable[str]) -> None:
        """Hear exactly these subjects."""
    def close(self) -> None:
        """Hear nothing any more; what waits is not answered."""
    def store_message(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        ttl_ns: int = 0,
        message_id: bytes = b"",
        ts_ns: int = 0,
    ) -> int:
        """Store under the next sequence; StoreError says why not. No time: this turn's."""
    def skip_to(self, seq: int) -> None:
        """Give out all sequences up to `seq`, which is above the last one, without messages."""
    def skip_message(self, message_id: bytes = b"") -> int:
        """Give out a sequence for a message that nobody wants."""
    def ack(self, reply: bytes, seq: int, tail: bytes = b"}") -> None:
        """A PubAck, after all that was accepted so far is durable."""
    def answer(self, reply: bytes, body: bytes, headers: bytes = b"") -> None:
        """Any answer, in order with the PubAcks."""
    def republish(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        seq: int,
        ts_ns: int,
        before: int,
    ) -> None:
        """A copy of what was stored, when it is durable; `before` was the subject's last one."""
    def removed(self) -> None:
        """Messages were removed: count anew; the removal is part of this turn."""
