from server.core._account import Account
from server.core._sublist import Sublist
from server.jetstream._consumer import ConsumerCore
from server.jetstream._hub import ConsumerHub
from server.jetstream._ingest import StreamSink
from storage._store import StreamStore

class StreamFeed:
    hub: ConsumerHub
    store: StreamStore
    account: Account
    name: bytes
    retention: int
    durable_seq: int
    interest: Sublist
    cores: dict[ConsumerCore, None]
    def __init__(
        self,
        hub: ConsumerHub,
        account: Account,
        store: StreamStore,
        name: str,
        retention: str,
        durable_seq: int,
    ) -> None: ...
    def attach(self, sink: StreamSink | None) -> None:
        """What stores the stream's messages asks here whether somebody wants them."""
    def set_retention(self, retention: str) -> None: ...
    def add(self, core: ConsumerCore) -> None: ...
    def drop(self, core: ConsumerCore) -> None: ...
    def changed_filters(self, had: bool, has: bool) -> None:
        """One of them has filters now, or has none any more."""
    def appended(self, first: int, last: int) -> None:
        """These became durable."""
    is_closed: bool
    is_purging: bool
    """Set while messages are purged: consumers are told by `ConsumerCore.purged` afterwards."""
    def remove_unwanted(self, first: int, last: int) -> None:
        """Messages in this range that no consumer waits for go, in slices, the first one now."""
    @property
    def is_sweeping(self) -> bool: ...
    def close(self) -> None:
        """The stream is: nothing more is removed from it."""
