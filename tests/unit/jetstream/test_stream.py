"""What a stream shows of its store."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.jetstream.config import StreamConfig
from server.jetstream.diskstores import DiskStores
from server.jetstream.stream import Stream
from storage.memstore import open_memory_store
from storage.ports import StoreLimits


def stream(limits: StoreLimits | None = None) -> Stream:
    engine: Any = SimpleNamespace(random_below=lambda bound: 0)
    account: Any = SimpleNamespace()
    return Stream(
        engine,
        account,
        StreamConfig(name="S", subjects=["s.>"]),
        open_memory_store(limits),
        0,
        None,
    )


@pytest.mark.feature("2.069")
def test_state_shows_only_what_is_durable() -> None:
    shown = stream()
    assert (shown.state().messages, shown.state().first_seq) == (0, 0)
    for number in range(4):
        shown.store.store(f"s.{number % 3}", b"", b"x" * number, 100 + number)
    empty = shown.state()
    assert (empty.messages, empty.bytes, empty.last_seq, empty.subject_count) == (0, 0, 0, 0)
    shown.on_stored(1, 2)
    state = shown.state(deleted=True)
    assert (state.messages, state.first_seq, state.last_seq) == (2, 1, 2)
    assert (state.subject_count, state.first_ts_ns, state.last_ts_ns) == (2, 100, 101)
    # The memory store counts 16 beside subject and payload.
    assert state.bytes == 2 * (16 + 3) + 1
    shown.on_stored(3, 4)
    assert shown.state() == shown.store.state()


def test_a_limit_that_made_room_for_what_is_not_durable_shows_an_empty_stream() -> None:
    shown = stream(StoreLimits(messages_max=1))
    shown.store.store("s.1", b"", b"", 1)
    shown.on_stored(1, 1)
    shown.store.store("s.1", b"", b"", 2)
    state = shown.state()
    assert (state.messages, state.bytes, state.first_seq, state.last_seq) == (0, 0, 2, 1)


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_a_removed_stream_gives_its_memory_back_at_once(tmp_path: Path, storage: str) -> None:
    """Others may hold the store for a while: what hangs together in circles waits for gc."""
    stores = DiskStores(tmp_path, durable=True)
    config = StreamConfig(name="S", subjects=["s.>"], storage=storage)
    store = stores.create("A", config, 1)
    stores.directory.settle()
    for number in range(10):
        store.store(f"s.{number}", b"", b"x", 100)
    stores.commit()
    home = store.home  # type: ignore[attr-defined]
    gc.collect()
    gc.disable()
    try:
        stores.remove("A", config, store)
        stores.directory.settle()
        stores.directory.wait_applied()
        assert sys.getrefcount(home) == 2  # the name here and the argument
    finally:
        gc.enable()
    assert (store.messages, store.bytes, store.load_last("s.1")) == (0, 0, None)
    stores.close()
