"""What a stream that starts finds in its own messages."""

from __future__ import annotations

import pytest

from server.jetstream._dedupe import DedupeWindow
from server.jetstream._lookback import lives, remember_ids, scheduling
from server.jetstream.ingest import StreamIngest
from server.jetstream.publish import Publisher
from storage._store import StreamStore
from storage.memstore import open_memory_store
from storage.ports import StoreLimits
from tests.unit.jetstream.engine_world import EngineWorld

SECOND_NS = 10**9


def block(*fields: str) -> bytes:
    return "\r\n".join(["NATS/1.0", *fields, "", ""]).encode() if fields else b""


def stored(*messages: tuple[str, ...]) -> StreamStore:
    """A store in which each message is a second younger than the one before."""
    store: StreamStore = open_memory_store(StoreLimits())
    for at, fields in enumerate(messages, 1):
        store.store("s.a", block(*fields), b"x", at * SECOND_NS)
    return store


@pytest.mark.feature("3.011")
def test_ids_of_what_lives_from_a_message_on() -> None:
    store = stored(
        ("Nats-Msg-Id: a",),
        (),
        ("A: b", "Nats-Msg-Id:  b", "Nats-Msg-Id: c"),
        ("X-Nats-Msg-Id: d", "nats-msg-id: d"),
        ("Nats-Msg-Id: e",),
        ("Nats-Msg-Id: a",),
    )
    store.delete(5)
    window = DedupeWindow(60 * SECOND_NS)
    remember_ids(store, window, 2)
    now_ns = 7 * SECOND_NS
    assert [window.seq_of(each, now_ns) for each in (b"a", b"b", b"c", b"d", b"e")] == [
        6, 3, 0, 0, 0
    ]  # fmt: skip
    assert len(window) == 2


@pytest.mark.feature("3.035")
def test_schedules_and_the_last_message_of_each() -> None:
    store = stored(
        ("Nats-Schedule: @every 5s", "Nats-Schedule-Target: t"),
        ("Nats-Scheduler: s.b", "Nats-Schedule-Next: x"),
        ("A: Nats-Schedule: no",),
        ("Nats-Scheduler:   s.b", "Nats-Schedule-Next: y"),
        ("Nats-Schedule-Next: z",),
        ("Nats-Schedule: @every 5s",),
    )
    store.delete(6)
    assert scheduling(store) == ([1], {b"s.b": 4})
    assert [lives(store, seq) for seq in (0, 1, 6, 7)] == [False, True, False, False]


def publisher_of(world: EngineWorld) -> Publisher:
    ingest = world.stream("S").ingest
    assert isinstance(ingest, StreamIngest)
    return ingest.publisher


@pytest.mark.feature("3.035")
def test_what_fires_next_is_known_again_from_the_messages_alone() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_msg_schedules=True, allow_msg_ttl=True)
    world.publish("s.one", b"x", "Nats-Schedule: @every 10s", "Nats-Schedule-Target: s.t")
    world.publish("s.two", b"x", "Nats-Schedule: @every 90s", "Nats-Schedule-Target: s.t")
    world.publish("s.gone", b"x", "Nats-Schedule: @every 10s", "Nats-Schedule-Target: s.t")
    world.pass_time(25)
    world.ask("STREAM.PURGE.S", {"filter": "s.gone"})
    publisher = publisher_of(world)
    known = {s: (d.seq, d.at_ns) for s, d in publisher.schedules.by_subject.items()}
    del known["s.gone"]
    assert set(known) == {"s.one", "s.two"}
    publisher.schedules.by_subject.clear()
    publisher.recover()
    assert {s: (d.seq, d.at_ns) for s, d in publisher.schedules.by_subject.items()} == known


def test_many_schedules_that_are_due_do_not_fire_in_one_step() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_msg_schedules=True, allow_msg_ttl=True)
    for number in range(300):
        world.publish(
            f"s.{number}", b"x", "Nats-Schedule: @every 10s", f"Nats-Schedule-Target: s.t.{number}"
        )
    first = world.stream("S").store.last_seq
    world.world.now_ns += 11 * SECOND_NS
    more = world.ingests.timers.run(world.world.now_ns)
    assert more
    fired = world.stream("S").store.last_seq - first
    assert 0 < fired < 300
    while world.ingests.timers.run(world.world.now_ns):
        pass
    assert world.stream("S").store.last_seq - first == 300


def test_ids_of_a_stream_that_nobody_publishes_to_any_more_are_given_back() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], duplicate_window=2 * SECOND_NS)
    for number in range(100):
        world.publish("s.a", b"x", f"Nats-Msg-Id: {number}")
    window = publisher_of(world).sink.window
    assert len(window) == 100
    world.pass_time(4)
    assert (len(window), window.memory_bytes) == (0, 0)
