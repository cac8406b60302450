"""Atomic batches are stored whole or not at all, whatever comes in between."""

from __future__ import annotations

import pytest

from server.jetstream import errors
from server.jetstream.ingest import StreamIngest
from tests.unit.jetstream.engine_world import EngineWorld
from tests.unit.jetstream.test_stream_rules import code, published

COMMIT = "Nats-Batch-Commit: 1"
END = "Nats-Batch-Commit: eob"


def member(
    world: EngineWorld, number: int, *fields: str, subject: str = "s.a", payload: bytes = b"x"
) -> bytes:
    """Publish one message of a batch; what is told, which is nothing but for the last."""
    block = "\r\n".join(
        ["NATS/1.0", "Nats-Batch-Id: b", f"Nats-Batch-Sequence: {number}", *fields, "", ""]
    ).encode()
    sizes = f"{len(block)} {len(block) + len(payload)}"
    said = world.client.say(f"HPUB {subject} r.9 {sizes}\r\n".encode() + block + payload + b"\r\n")
    world.run()
    return said + world.client.take()


def ingest_of(world: EngineWorld) -> StreamIngest:
    ingest = world.stream("S").ingest
    assert isinstance(ingest, StreamIngest)
    return ingest


@pytest.mark.feature("3.042", "9.001")
def test_a_batch_that_the_account_has_no_room_for_is_refused_as_a_whole() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_atomic=True)
    usage = ingest_of(world).sink.usage
    assert usage is not None
    usage.max = usage.used + 900
    member(world, 1, payload=b"y" * 400)
    told = member(world, 2, COMMIT, payload=b"y" * 400)
    assert b'"err_code":10002' in told
    assert world.messages("S") == []
    assert member(world, 1, payload=b"y" * 300) == b"MSG r.9 1 0\r\n\r\n"
    assert b'"count":2' in member(world, 2, COMMIT, payload=b"y" * 300)
    assert len(world.messages("S")) == 2


@pytest.mark.feature("3.042")
def test_the_header_that_ends_a_batch_counts_too() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_atomic=True, discard="new", max_bytes=160)
    member(world, 1, payload=b"")
    member(world, 2, payload=b"")
    assert b'"err_code":10077' in member(world, 3, END)
    assert (world.messages("S"), ingest_of(world).sink.down) == ([], None)


@pytest.mark.feature("3.042", "2.018")
def test_a_subject_that_a_transform_makes_too_long_is_refused_before_the_first_is_stored() -> None:
    world = EngineWorld()
    dest = "t." + ".".join(["{{wildcard(1)}}"] * 20)
    world.create(
        "S", subjects=["s.*"], allow_atomic=True, subject_transform={"src": "s.*", "dest": dest}
    )
    member(world, 1)
    told = member(world, 2, COMMIT, subject="s." + "z" * 3900)
    assert b'"err_code":10077' in told
    assert b"subject is too long" in told
    assert world.messages("S") == []
    assert b"subject is too long" in world.request("s." + "z" * 3900, b"x")


@pytest.mark.feature("3.042")
def test_a_batch_that_breaks_half_way_shows_nothing_and_stops_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_atomic=True)
    published(world, "s.a")
    publisher = ingest_of(world).publisher
    calls: list[int] = []

    def fail_second(message: object, seq: int) -> None:
        calls.append(seq)
        if len(calls) == 2:
            raise MemoryError

    monkeypatch.setattr(publisher, "note_schedule", fail_second)
    member(world, 1)
    told = member(world, 2, COMMIT)
    assert b"stream is down" in told
    assert [message.seq for message in world.messages("S")] == [1]
    assert code(published(world, "s.a")) == 10077


@pytest.mark.feature("3.042")
def test_the_first_message_that_cannot_be_stored_costs_only_its_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_atomic=True)

    def refuse(message: object) -> int:
        raise errors.STREAM_STORE_FAILED(err="maximum messages exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(ingest_of(world).publisher, "store_checked", refuse)
        assert b"maximum messages exceeded" in member(world, 1, COMMIT)
    assert ingest_of(world).sink.down is None
    assert b'"count":1' in member(world, 1, COMMIT)


FULL_SUBJECT = {
    "subjects": ["s.>"],
    "allow_atomic": True,
    "allow_rollup_hdrs": True,
    "discard": "new",
    "discard_new_per_subject": True,
    "max_msgs_per_subject": 1,
}


@pytest.mark.feature("3.042")
@pytest.mark.parametrize(
    "line", ["X: a\nNats-Rollup:", "X: a\r\n Nats-Rollup:", "X: a\rb\nNats-Rollup:"]
)
def test_what_looks_like_a_rollup_inside_a_value_is_none(line: str) -> None:
    """The checks and the store read one rollup: the field that a line of its own begins with."""
    world = EngineWorld()
    world.create("S", **FULL_SUBJECT)
    published(world, "s.a")
    assert b'"count":1' in member(world, 1, COMMIT, line, "Nats-Rollup: sub")
    assert [message.seq for message in world.messages("S")] == [2]
    assert b"maximum messages per subject exceeded" in member(world, 1, COMMIT, line)
    assert ingest_of(world).sink.down is None


@pytest.mark.feature("3.042")
def test_a_rollup_whose_line_has_no_end_is_one_to_all() -> None:
    world = EngineWorld()
    world.create("S", **FULL_SUBJECT)
    published(world, "s.a")
    block = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\n%b\r\nNats-Rollup: sub"
    block = block % COMMIT.encode()
    said = world.client.say(b"HPUB s.a r.9 %d %d\r\n%b\r\n" % (len(block), len(block), block))
    world.run()
    assert b'"count":1' in said + world.client.take()
    assert ingest_of(world).sink.down is None


@pytest.mark.feature("2.027", "2.028")
def test_open_batches_go_when_their_kind_is_switched_off() -> None:
    world = EngineWorld()
    both = {"subjects": ["s.>"], "allow_atomic": True, "allow_batched": True}
    world.create("S", **both)
    counts = ingest_of(world).shared.batches
    member(world, 1, payload=b"y" * 100)
    world.client.say(b"PUB s.a r.f.10.ok.1.0.$FI 1\r\nx\r\n")
    assert (counts.atomic, counts.fast) == (1, 1)
    world.update("S", **both | {"allow_atomic": False})
    assert (counts.atomic, counts.fast, counts.staged_bytes) == (0, 1, 0)
    world.update("S", **both | {"allow_batched": False})
    assert (counts.atomic, counts.fast) == (0, 0)
    assert b'"err_code":10176' in member(world, 2, COMMIT)


@pytest.mark.feature("3.047")
def test_a_fast_batch_that_went_back_behind_a_failure_takes_nothing_more() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_batched=True)

    def step(seq: int, operation: int, block: bytes = b"NATS/1.0\r\nA: b\r\n\r\n") -> bytes:
        said = world.client.say(
            b"HPUB s.a r.f.10.ok.%d.%d.$FI %d %d\r\n%bx\r\n"
            % (seq, operation, len(block), len(block) + 1, block)
        )
        world.run()
        return said + world.client.take()

    step(1, 0)
    refused = step(2, 1, b"NATS/1.0\r\nNats-Expected-Last-Sequence: 9\r\n\r\n")
    assert b'"type":"err"' in refused
    step(2, 1)
    assert step(3, 1) + step(4, 2) == b""
    assert [message.seq for message in world.messages("S")] == [1]
    world.pass_time(15)
    assert ingest_of(world).shared.batches.fast == 0
