"""The stores that the conformance and property tests run over."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from storage._store import StreamStore
from storage.filestore import FileStores
from storage.memstore import open_memory_store
from storage.ports import StoreLimits


@dataclass(frozen=True)
class StoreKind:
    name: str
    open: Callable[[StoreLimits, int], StreamStore]
    overhead: int
    header_overhead: int = 0


class Folder:
    """The data directory of the newest file store; one at a time is open."""

    def __init__(self) -> None:
        self.temporary: TemporaryDirectory[str] | None = None
        self.stores: FileStores | None = None

    def open_file_store(self, limits: StoreLimits | None = None, first_seq: int = 0) -> StreamStore:
        self.close()
        self.temporary = TemporaryDirectory(prefix="martlet-test-")
        self.stores = FileStores(
            Path(self.temporary.name), threaded=False, block_size_min=1024, block_size_max=4096
        )
        return self.stores.create({"name": "test"}, limits, first_seq)

    def close(self) -> None:
        if self.stores is not None and self.temporary is not None:
            self.stores.close(clean=False)
            self.temporary.cleanup()
            self.stores = None


FOLDER = Folder()
atexit.register(FOLDER.close)
MEMORY = StoreKind("memory", open_memory_store, overhead=16)
FILE = StoreKind("file", FOLDER.open_file_store, overhead=30, header_overhead=4)
KINDS = [MEMORY, FILE]
