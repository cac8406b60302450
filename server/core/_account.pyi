from collections.abc import Callable
from typing import TypeAlias

from server.core._broker import Broker
from server.core._client import Client
from server.core._mappings import Mappings
from server.core._sublist import Sublist
from server.core.msgtrace import MessageTrace

# subject, reply, header block (b"" when none), payload, the subject subscribed to
MessageCallback: TypeAlias = Callable[[str, str, bytes, bytes, str], None]
# subject, reply, header block, payload, who published it (None: the server itself)
RequestCallback: TypeAlias = Callable[[str, str, bytes, bytes, Client | None], None]

class PySub:
    """A subscription of the server itself; `unsubscribe` is idempotent."""

    subject: str
    queue: str
    delivered: int
    on_traced: Callable[[MessageTrace, str], None] | None
    """Adds to the trace of a message that comes to it."""
    def unsubscribe(self) -> None: ...

class Account:
    """A name space of subjects: one trie, limits (-1: none) and counters."""

    name: str
    max_payload: int
    max_subscriptions: int  # per account
    max_connections: int
    issued_at: str
    traces_parents: bool
    trace_destination: str
    trace_percent: int
    mappings: Mappings | None
    """Of what its clients publish; `Broker.apply_limits` makes the connected ones see others."""
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    slow_consumers: int
    connections: int  # clients bound to it now
    total_connections: int
    subscriptions: int  # live ones in the trie
    @property
    def sublist(self) -> Sublist: ...
    def __init__(self, broker: Broker, name: str) -> None: ...
    def trace_parents(self, destination: str, percent: int) -> None:
        """Trace so many of the messages with a sampled `traceparent`; an empty subject: none."""
    def publish(
        self, subject: str, reply: str = "", headers: bytes = b"", payload: bytes = b""
    ) -> int:
        """Route a message from inside the server; how many sinks took it.

        `headers` is a whole block (`NATS/1.0\\r\\n...\\r\\n\\r\\n`). Connections that got
        output are flushed at the end of the turn (one is asked for when none is running).
        """
    def close(self) -> None:
        """Nothing is heard any more: for an account that is forgotten."""
    def subscribe(self, subject: str, callback: MessageCallback, queue: str = "") -> PySub:
        """Call `callback` for each match, in a phase at the end of the turn."""
    def serve(self, subject: str, callback: RequestCallback, queue: str = "") -> PySub:
        """As `subscribe`, for who must know the requester."""
    def has_interest(self, subject: str) -> bool: ...
    def has_literal_interest(self, subject: str) -> bool:
        """Whether somebody outside of queue groups hears this very subject, not a wildcard."""
