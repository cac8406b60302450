from collections.abc import Callable

from server.core._account import Account, PySub
from server.jetstream._ingest import StreamSink

class DirectSub(PySub):
    """Hears direct gets of a stream; the plain ones never reach the callback."""

    def __init__(
        self,
        account: Account,
        subject: str,
        callback: Callable[[str, str, bytes, bytes, str], None],
        queue: str,
        source: StreamSink,
    ) -> None: ...
    @property
    def answered_at_once(self) -> int:
        """How many requests the callback never saw."""
