"""The stores that the conformance and property tests run over."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from storage._store import StreamStore
from storage.filestore import FileStores
from storage.identity import FORMAT_VERSION, write_identity
from storage.keys import ServerKeys
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

    def open_file_store(
        self,
        limits: StoreLimits | None = None,
        first_seq: int = 0,
        codec: str = "none",
        keys: ServerKeys | None = None,
    ) -> StreamStore:
        self.close()
        self.temporary = TemporaryDirectory(prefix="martlet-test-")
        path = Path(self.temporary.name)
        # One identity: a master key takes 50 ms to derive, and is remembered by it.
        write_identity(path, b"the same for all", 1, FORMAT_VERSION)
        self.stores = FileStores(
            path,
            threaded=False,
            block_size_min=1024,
            block_size_max=4096,
            codec_of=lambda settings: codec,
            keys=keys,
        )
        return self.stores.create({"name": "test"}, limits, first_seq)

    def settle(self, store: StreamStore) -> None:
        """What was stored reaches its blocks, and sealed ones are rewritten."""
        if self.stores is None or store not in self.stores.stores.values():
            return
        self.stores.wait(self.stores.commit())
        self.stores.directory.wait_applied()
        self.stores.directory.maintain()
        self.stores.directory.wait_rewritten()

    def content(self) -> bytes:
        """All bytes of all files, once the disk did what it was asked for."""
        assert self.temporary is not None
        files = sorted(Path(self.temporary.name).rglob("*"))
        return b"\0".join(file.read_bytes() for file in files if file.is_file())

    def damage_first_block(self) -> bool:
        """One bit flips near the start of its data, framed or not."""
        assert self.temporary is not None
        path = min(Path(self.temporary.name).glob("streams/*/*.blk"))
        data = bytearray(path.read_bytes())
        data[110] ^= 4
        with path.open("r+b") as file:
            file.write(data)
        return True

    def close(self) -> None:
        if self.stores is not None and self.temporary is not None:
            self.stores.close(clean=False)
            self.temporary.cleanup()
            self.stores = None


FOLDER = Folder()
atexit.register(FOLDER.close)
MEMORY = StoreKind("memory", open_memory_store, overhead=16)
FILE = StoreKind("file", FOLDER.open_file_store, overhead=30, header_overhead=4)
COMPRESSED = StoreKind("compressed", partial(FOLDER.open_file_store, codec="s2"), 30, 4)
ENCRYPTED = StoreKind(
    "encrypted",
    partial(FOLDER.open_file_store, codec="zstd", keys=ServerKeys("a key for tests")),
    30,
    4,
)
KINDS = [MEMORY, FILE, COMPRESSED, ENCRYPTED]
