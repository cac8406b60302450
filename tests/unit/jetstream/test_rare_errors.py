"""Refusals for which a server must be in a state of its own: full, limited, or with broken data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.jetstream.engine_world import EngineWorld
from tests.unit.jetstream.test_stream_rules import published


def refusal(answer: dict[str, Any]) -> tuple[int, str]:
    return answer["error"]["err_code"], answer["error"]["description"]


@pytest.mark.feature("11.001")
def test_an_account_without_jetstream() -> None:
    world = EngineWorld()
    del world.engine.accounts["$G"]
    assert refusal(world.ask("STREAM.NAMES")) == (10039, "JetStream not enabled for account")


@pytest.mark.feature("11.001")
def test_more_snapshots_than_a_server_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    world = EngineWorld()
    world.create("S")
    monkeypatch.setattr(type(world.engine.snapshots), "is_full", True)
    answer = world.ask("STREAM.SNAPSHOT.S", {"deliver_subject": "to"})
    assert refusal(answer) == (10064, "snapshot failed: too many snapshots are being sent")


@pytest.mark.feature("11.001")
def test_a_consumer_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    world = EngineWorld()
    world.create("S")

    def fail(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(world.engine.stores, "save_consumer", fail)
    config = {"durable_name": "C", "ack_policy": "explicit"}
    answer = world.ask("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    assert refusal(answer) == (10104, "error creating store for consumer: no room")
    assert world.ask("CONSUMER.NAMES.S")["consumers"] in ([], None)


@pytest.mark.feature("11.001")
def test_a_batch_beyond_what_the_server_allows() -> None:
    world = EngineWorld()
    world.engine.options = replace(world.engine.options, max_request_batch=10)
    world.create("S")
    config = {"durable_name": "C", "ack_policy": "explicit", "max_batch": 11}
    answer = world.ask("CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
    assert refusal(answer) == (10125, "consumer max request batch exceeds server limit of 10")


@pytest.mark.feature("3.030")
@pytest.mark.parametrize("payload", [b"x", b'{"val":5}', b"[]", b'{"val":"1"'])
def test_a_counter_over_something_else(payload: bytes) -> None:
    world = EngineWorld()
    stream = world.create("S", allow_msg_counter=True)
    stream.ingest.sink.store_message(b"S", b"", payload)
    world.run()
    answer = published(world, "S", b"", "Nats-Incr: 1")
    assert refusal(answer) == (10172, "message counter is broken")
    assert world.info("S")["state"]["messages"] == 1


@pytest.mark.feature("3.049")
def test_more_fast_batches_than_a_server_has_open() -> None:
    world = EngineWorld()
    stream = world.create("S", allow_batched=True)
    batches = stream.ingest.publisher
    batches.fast.counts.fast = batches.limits.fast_total_max
    said = world.client.say(b"PUB S r.b1.0.ok.1.0.$FI 1\r\nx\r\n")
    world.run()
    said += world.client.take()
    answer = json.loads(said.split(b"\r\n")[1])
    assert refusal(answer) == (10211, "batch publish too many inflight")
    batches.fast.counts.fast = 0


@pytest.mark.feature("11.008")
def test_a_mirror_ahead_of_its_origin_says_so() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o"])
    for _ in range(3):
        world.publish("o")
    world.create("M", mirror={"name": "O"})
    world.pass_time(1)
    world.ask("STREAM.DELETE.O")
    world.create("O", subjects=["o"])
    world.pass_time(1)
    error = world.info("M")["mirror"]["error"]
    assert (error["code"], error["err_code"]) == (500, 10029)


@pytest.mark.feature("2.041")
@pytest.mark.parametrize(("key", "err_code"), [("mirror", 10214), ("sources", 10217)])
def test_a_copy_by_a_consumer_of_another_kind(key: str, err_code: int) -> None:
    world = EngineWorld()
    world.create("O", subjects=["o"])
    config = {"durable_name": "C", "deliver_subject": "d.C", "ack_policy": "none"}
    world.ask("CONSUMER.CREATE.O.C", {"stream_name": "O", "config": config})
    origin = {"name": "O", "consumer": {"name": "C", "deliver_subject": "d.C"}}
    world.create("M", **{key: origin if key == "mirror" else [origin]})
    world.pass_time(1)
    told = world.info("M")[key]
    assert (told if key == "mirror" else told[0])["error"]["err_code"] == err_code


@pytest.mark.feature("9.006")
def test_more_bytes_than_there_are() -> None:
    world = EngineWorld()
    limits = world.engine.accounts["$G"].limits
    world.engine.accounts["$G"].limits = replace(limits, max_store_bytes=1000)
    config = {"name": "S", "storage": "file", "max_bytes": 1001}
    answer = world.ask("STREAM.CREATE.S", config)
    assert refusal(answer) == (10047, "insufficient storage resources available")
    assert world.ask("STREAM.NAMES")["streams"] is None
