from server.jetstream._ingest import StreamSink
from storage._store import StreamStore

class PlainCopier:
    """Copies plain messages; `source_head` and `source_tail` stand around a mark's sequence."""

    position: int
    copied: int
    needs_python: bool
    def __init__(
        self,
        sink: StreamSink,
        origin: StreamStore,
        filters: list[str] | None,
        source_head: bytes | None = None,
        source_tail: bytes = b"",
        identity: bytes = b"",
    ) -> None: ...
    def copy(self, position: int, last: int, messages_max: int) -> None:
        """Copy what is behind `position` and not behind `last`."""

def last_with(store: StreamStore, text: bytes, seq: int, stop: int) -> int:
    """The last sequence in (stop, seq] whose headers have `text`; 0: none."""
