"""The stores that the conformance and property tests run over: a name and how to open an empty one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage._store import StreamStore
from storage.memstore import open_memory_store
from storage.ports import StoreLimits


@dataclass(frozen=True)
class StoreKind:
    name: str
    open: Callable[[StoreLimits, int], StreamStore]
    overhead: int
    header_overhead: int = 0


MEMORY = StoreKind("memory", open_memory_store, overhead=16)
KINDS = [MEMORY]
