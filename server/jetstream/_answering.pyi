from server.core._account import Account
from server.jetstream._commit import Writer
from server.jetstream._republish import Republisher
from storage._store import StreamStore

class Answering(Writer):
    """Keeps a stream's answers until what they tell of is durable."""

    no_ack: bool
    copies: Republisher | None
    """None: nothing is republished."""
    def __init__(
        self, account: Account, store: StreamStore, name: str, in_memory: bool, domain: str
    ) -> None: ...
