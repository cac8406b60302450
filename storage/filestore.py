"""The file store: a data directory whose streams are `StreamStore`s over blocks on disk.

`FileStores` owns the directory. Write through the stores, then once a turn `commit()`; what a
ticket covers is durable when `poll()` has reached it. DESIGN.md tells what a recovery does.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from storage._filestore import StoreIndexer
from storage._fs import Files
from storage._store import StreamStore
from storage.ports import StoreLimits

SNAPSHOT_MESSAGES_MAX = 500_000
"""A store with more messages writes its indexes at a clean stop only, not at each checkpoint."""

Settings = dict[str, Any]


class FileStores:
    """All streams of one data directory, by group number."""

    def __init__(
        self,
        path: str | PathLike[str],
        limits_of: Callable[[Settings], StoreLimits] = lambda settings: StoreLimits(),
        files: Files | None = None,
        **options: Any,
    ) -> None:
        """`options` are DataDirectory's. Limits are carried out by each store's `enforce`."""
        self.stores: dict[int, StreamStore] = {}
        self._limits_of = limits_of
        self.directory = DataDirectory(path, files, attach=self._attach, **options)
        for store in self.stores.values():
            store.adopt_last_seq()

    def _attach(self, home: BlockHome, settings: Settings) -> None:
        """Between a home's checkpoint and the replay of the log."""
        store = StreamStore(home, self._limits_of(settings))
        if home.snapshot is None or not restored(store, home.snapshot):
            store.rebuild()
        self._adopt(home, store)

    def _adopt(self, home: BlockHome, store: StreamStore) -> None:
        home.indexer = StoreIndexer(store)
        home.snapshot_source = lambda clean: (
            store.snapshot() if clean or store.messages <= SNAPSHOT_MESSAGES_MAX else None
        )
        self.stores[home.group] = store

    def create(
        self,
        settings: Settings,
        limits: StoreLimits | None = None,
        first_seq: int = 0,
        *,
        settle: bool = True,
    ) -> StreamStore:
        """A new stream; `settings` is what the next start hands to `limits_of`.

        Without `settle` it lasts from the directory's next `settle` on.
        """
        home = self.directory.create_stream(settings, settle)
        if first_seq > 1:
            home.drop(first_seq)
        store = StreamStore(home, limits or self._limits_of(settings), first_seq)
        self._adopt(home, store)
        return store

    def delete(self, store: StreamStore, *, settle: bool = True) -> None:
        """Without `settle` it is gone for good from the directory's next `settle` on."""
        home = store.home
        assert isinstance(home, BlockHome)
        self.directory.delete_stream(home, settle)
        del self.stores[home.group]

    def commit(self) -> int:
        """Hand what was written this turn to the disk; the ticket."""
        return self.directory.commit()

    def poll(self) -> int:
        """Take what the disk finished; the highest durable ticket."""
        return self.directory.poll()

    def wait(self, ticket: int) -> None:
        self.directory.wait(ticket)

    def close(self, clean: bool = True) -> None:
        self.directory.close(clean)


def restored(store: StreamStore, snapshot: bytes) -> bool:
    """Whether `store` could take its indexes from `snapshot`."""
    try:
        store.restore(snapshot)
    except ValueError:
        return False
    return True
