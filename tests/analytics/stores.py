"""Data directories to read from, and what plain Python says is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark_jetstream import options
from storage._store import StreamStore
from storage.filestore import FileStores

SMALL_BLOCKS: dict[str, Any] = {
    "threaded": False,
    "block_size_min": 1024,
    "block_size_max": 8192,
    "segment_size": 1 << 20,
}


def settings(name: str, account: str = "$G") -> dict[str, Any]:
    return {"account": account, "created_ns": 1, "config": json.dumps({"name": name})}


def settle(stores: FileStores) -> None:
    """All that was written is in the blocks."""
    stores.wait(stores.commit())
    stores.directory.wait_applied()


def checkpoint(stores: FileStores) -> None:
    """Behind all that maintenance has to do."""
    for _ in range(5):
        settle(stores)
        stores.directory.maintain()
    settle(stores)
    for home in stores.directory.homes.values():
        stores.directory.checkpoint_now(home, False)
    settle(stores)


def live(store: StreamStore) -> list[tuple[int, str, int, bytes, bytes]]:
    """(sequence, subject, time, headers, payload) of each message, asked of the store."""
    found, seq = [], 1
    while (message := store.load_next(seq)) is not None:
        found.append(
            (message.seq, message.subject, message.ts_ns, message.headers, message.payload)
        )
        seq = message.seq + 1
    return found


def parsed(path: Path | str, **more: str) -> options.Options:
    return options.parse({"path": str(path), **more})
