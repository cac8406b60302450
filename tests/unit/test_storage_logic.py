"""What a store tells of removals, and how it reads a time to live."""

from __future__ import annotations

import pytest

from storage._headers import ttl_ns
from storage._probe import EventsProbe
from storage._store import StreamStore
from storage.memstore import open_memory_store
from storage.ports import StoreLimits

SECOND = 1_000_000_000
MESSAGE_BYTES = 16 + 1


def watched(**limits: object) -> tuple[StreamStore, EventsProbe]:
    store = open_memory_store(StoreLimits(**limits))  # type: ignore[arg-type]
    events = EventsProbe()
    store.set_events(events)
    return store, events


def put(store: StreamStore, subjects: str, ts_ns: int = SECOND) -> None:
    for subject in subjects:
        store.store(subject, b"", b"", ts_ns)


def test_events_tell_each_removal_once() -> None:
    store, events = watched()
    put(store, "abca")
    store.delete(2)
    store.delete(2)
    store.purge("a")
    assert events.seen == [
        (2, b"b", MESSAGE_BYTES),
        (1, b"a", MESSAGE_BYTES),
        (4, b"a", MESSAGE_BYTES),
    ]


def test_events_tell_what_limits_and_age_take() -> None:
    store, events = watched(messages_max=2, messages_per_subject_max=1, age_max_ns=5 * SECOND)
    put(store, "abcb")
    assert [seq for seq, *_ in events.seen] == [1, 2]
    store.expire(7 * SECOND)
    assert [seq for seq, *_ in events.seen] == [1, 2, 3, 4]


def test_events_tell_a_purge_of_all_at_once() -> None:
    store, events = watched()
    put(store, "abc")
    store.purge()
    store.compact(9)
    assert events.seen == [("purged", 3, 3 * MESSAGE_BYTES), ("purged", 0, 0)]


def test_nobody_is_told_after_events_are_taken_away() -> None:
    store, events = watched()
    put(store, "ab")
    store.set_events(None)
    store.delete(1)
    assert events.seen == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5), ("5s", 5), ("1h30m", 5400), ("1.5s", 1), ("2m0.9s", 120), ("1500ms", 1),
        ("never", -1), ("NEVER", -1), ("0", 0), ("", 0), ("0s", 0), ("999ms", 0), ("-5", 0),
        ("5x", 0), ("s", 0), ("1h 30m", 0), ("3000000us", 3), ("3000000µs", 3), ("1e3s", 0),
        ("99999999999999999999", 0), ("neverr", 0), ("1d", 0), (".5m", 30), ("1.m", 60),
    ],
)  # fmt: skip
def test_time_to_live_of_a_header(text: str, seconds: int) -> None:
    headers = f"NATS/1.0\r\nA: b\r\nNats-TTL: {text}\r\n\r\n".encode()
    assert ttl_ns(headers) == (-1 if seconds < 0 else seconds * SECOND)


@pytest.mark.parametrize("name", ["nats-ttl", "X-Nats-TTL", "Nats-TTLs"])
def test_another_header_is_no_time_to_live(name: str) -> None:
    assert ttl_ns(f"NATS/1.0\r\n{name}: 5\r\n\r\n".encode()) == 0
    assert ttl_ns(f"NATS/1.0\r\n{name}: 5\r\nNats-TTL:7\r\n\r\n".encode()) == 7 * SECOND


def held_bytes(store: StreamStore) -> int:
    return store.home.held_memory_bytes  # type: ignore[attr-defined, no-any-return]


def test_memory_of_the_oldest_messages_is_given_back_without_copying() -> None:
    store, _ = watched(messages_max=2000)
    for _ in range(30_000):
        store.store("a", b"", b"x" * 1000, SECOND)
    assert store.messages == 2000
    assert held_bytes(store) < 2 * store.bytes + (2 << 20)


def test_memory_of_scattered_deletes_is_given_back() -> None:
    store, _ = watched()
    for _ in range(20_000):
        store.store("a", b"", b"x" * 1000, SECOND)
    store.delete_many([seq for seq in range(1, 20_001) if seq % 20])
    for _ in range(500):
        store.store("a", b"", b"y" * 100, SECOND)
    assert held_bytes(store) < 3 * store.bytes + (3 << 20)
    message = store.load(20)
    assert message is not None
    assert message.payload == b"x" * 1000
    assert [store.load(seq) for seq in (1, 19, 21)] == [None] * 3
