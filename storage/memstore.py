"""The store of a stream that lives in memory."""

from __future__ import annotations

from storage._memory import MemoryHome
from storage._store import StreamStore
from storage.ports import StoreLimits


def open_memory_store(limits: StoreLimits | None = None, first_seq: int = 0) -> StreamStore:
    return StreamStore(MemoryHome(), limits, first_seq)
