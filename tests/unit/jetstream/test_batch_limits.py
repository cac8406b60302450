"""How many atomic batches may be open, how large and how silent; what is seen of one meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from config.options import JetStreamOptions, Options
from server.jetstream._ingest import StreamSink
from server.jetstream.ingest import StreamIngest
from server.jetstream.stores import MemoryStores
from server.jetstream.stream import store_limits
from storage.memstore import open_memory_store
from tests.unit.jetstream.engine_world import EngineWorld

SECOND_NS = 10**9


def send(world: EngineWorld, subject: str, batch: str, number: int, *more: str) -> Any:
    """The answer's content; None: an empty one."""
    fields = (f"Nats-Batch-Id: {batch}", f"Nats-Batch-Sequence: {number}", *more)
    block = "\r\n".join(["NATS/1.0", *fields, "", ""]).encode()
    line = b"HPUB %b r.2 %d %d\r\n" % (subject.encode(), len(block), len(block) + 1)
    said = world.client.say(line + block + b"x\r\n")
    world.run()
    said += world.client.take()
    payload = said.split(b"MSG r.2 ", 1)[1].split(b"\r\n")[1]
    return json.loads(payload) if payload else None


def code(answer: Any) -> int:
    return int(answer["error"]["err_code"])


@pytest.mark.feature("3.041")
def test_a_server_has_a_thousand_open_batches_and_no_more() -> None:
    world = EngineWorld()
    for stream in range(21):
        world.create(f"S{stream}", subjects=[f"s.{stream}"], allow_atomic=True)
    for number in range(1_000):
        assert send(world, f"s.{number % 20}", f"b{number}", 1) is None
    answer = send(world, "s.20", "more", 1)
    assert (code(answer), answer["error"]["code"]) == (10210, 429)
    assert send(world, "s.0", "b0", 2, "Nats-Batch-Commit: 1")["count"] == 2
    assert send(world, "s.20", "more", 1) is None


@pytest.mark.feature("3.041")
def test_the_configuration_has_other_limits() -> None:
    options = JetStreamOptions(
        max_batch_inflight_per_stream=2,
        max_batch_inflight_total=3,
        max_batch_messages=2,
        max_batch_timeout_ns=3 * SECOND_NS,
    )
    world = EngineWorld(Options(jetstream=options))
    world.create("A", subjects=["a"], allow_atomic=True)
    world.create("B", subjects=["b"], allow_atomic=True)
    assert [send(world, "a", batch, 1) for batch in ("1", "2")] == [None, None]
    assert code(send(world, "a", "3", 1)) == 10210
    assert send(world, "b", "1", 1) is None
    assert code(send(world, "b", "2", 1)) == 10210
    assert send(world, "a", "1", 2) is None
    assert code(send(world, "a", "1", 3)) == 10199
    world.pass_time(2)
    assert send(world, "b", "1", 2) is None
    world.pass_time(2)
    assert code(send(world, "a", "2", 2, "Nats-Batch-Commit: 1")) == 10176
    assert code(send(world, "b", "1", 3)) == 10199


def held(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> StreamSink:
    """The sink of a stream on a disk that is done when the test says so."""
    monkeypatch.setattr(
        MemoryStores,
        "create",
        lambda self, account, config, created_ns: open_memory_store(store_limits(config)),
    )
    config = {"name": "S", "subjects": ["s.>"], "storage": "file"}
    world.ask("STREAM.CREATE.S", config | {"allow_atomic": True, "allow_direct": True})
    ingest = world.stream("S").ingest
    assert isinstance(ingest, StreamIngest)
    return ingest.sink


@pytest.mark.feature("3.043")
def test_nobody_reads_of_a_batch_while_its_commit_is_not_durable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = EngineWorld()
    sink = held(world, monkeypatch)
    assert send(world, "s.a", "b", 1) is None
    block = (
        b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 2\r\nNats-Batch-Commit: 1\r\n\r\n"
    )
    said = world.client.say(b"HPUB s.b r.3 %d %d\r\n%bx\r\n" % (len(block), len(block) + 1, block))
    # No disk is there to say that it has them.
    assert sink.last_seq == 2
    assert b"r.3" not in said
    asked = {"multi_last": ["s.>"]}
    for seq in (1, 2):
        assert code(world.ask("STREAM.MSG.GET.S", {"seq": seq})) == 10037
        assert b" 404 " in direct(world, {"seq": seq})
    assert b" 404 " in direct(world, {"seq": 1, "batch": 9})
    assert b" 404 " in direct(world, asked)
    assert world.info("S")["state"]["messages"] == 0
    sink.release(2)
    world.run()
    assert b'"batch":"b","count":2' in world.client.take()
    assert direct(world, {"seq": 1, "batch": 9}).count(b"Nats-Stream: S") == 2
    assert direct(world, asked).count(b"Nats-Stream: S") == 2
    assert world.info("S")["state"]["messages"] == 2


def direct(world: EngineWorld, asked: dict[str, Any]) -> bytes:
    body = json.dumps(asked).encode()
    said = world.client.say(b"PUB $JS.API.DIRECT.GET.S r.4 %d\r\n%b\r\n" % (len(body), body))
    world.run()
    return said + world.client.take()
