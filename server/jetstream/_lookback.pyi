from server.jetstream._dedupe import DedupeWindow
from storage._store import StreamStore

def lives(store: StreamStore, seq: int) -> bool:
    """Whether the message is there; its bytes are not looked at."""

def remember_ids(store: StreamStore, window: DedupeWindow, first: int) -> None:
    """The ids of all messages from `first` on, in order."""

def scheduling(store: StreamStore) -> tuple[list[int], dict[bytes, int]]:
    """The messages that are schedules; by schedule, the last message that it published."""
