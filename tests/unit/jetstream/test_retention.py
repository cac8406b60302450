"""What consumers have to do with what a stream keeps, and what a purge does to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from config.options import JetStreamOptions, Options
from tests.unit.jetstream.engine_world import EngineWorld
from tests.unit.jetstream.test_stream_rules import published


def consumer(world: EngineWorld, name: str, **config: Any) -> None:
    config = {"durable_name": name, "ack_policy": "explicit", **config}
    body = {"stream_name": "S", "config": config}
    answer = world.ask(f"CONSUMER.DURABLE.CREATE.S.{name}", body)
    assert "error" not in answer, answer


def fetch(world: EngineWorld, name: str, batch: int) -> list[str]:
    """The reply subjects of what was delivered."""
    body = json.dumps({"batch": batch, "no_wait": True}).encode()
    line = b"PUB $JS.API.CONSUMER.MSG.NEXT.S.%b r.n %d\r\n%b\r\n"
    said = world.client.say(line % (name.encode(), len(body), body))
    world.run()
    said += world.client.take()
    words = [each.split() for each in said.split(b"\r\n") if each.startswith(b"MSG ")]
    return [each[3].decode() for each in words if len(each) == 5]


def ack(world: EngineWorld, reply: str, text: bytes = b"+ACK") -> None:
    world.publish(reply, text)
    world.run()


def messages(world: EngineWorld) -> int:
    return int(world.info("S")["state"]["messages"])


@pytest.mark.feature("2.049")
def test_a_stream_that_becomes_one_of_interest_drops_what_all_have_acknowledged() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"])
    consumer(world, "A")
    consumer(world, "B", filter_subject="s.a")
    for subject in ("s.a", "s.b", "s.a"):
        world.publish(subject)
    world.run()
    for reply in fetch(world, "A", 2) + fetch(world, "B", 1):
        ack(world, reply)
    assert messages(world) == 3
    world.update("S", subjects=["s.>"], retention="interest")
    world.run()
    assert [m.seq for m in world.messages("S")] == [3]


@pytest.mark.feature("2.049")
def test_a_stream_without_consumers_that_becomes_one_of_interest_is_empty() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"])
    world.publish("s.a")
    world.update("S", subjects=["s.>"], retention="interest")
    assert messages(world) == 0
    assert world.info("S")["state"]["first_seq"] == 2


@pytest.mark.feature("2.059")
def test_a_stream_of_limits_loses_nothing_by_its_consumers() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"])
    consumer(world, "A")
    for _ in range(3):
        world.publish("s.a")
    world.run()
    for reply, text in zip(fetch(world, "A", 3), (b"+ACK", b"+TERM", b"+ACK"), strict=True):
        ack(world, reply, text)
    assert world.ask("CONSUMER.INFO.S.A")["ack_floor"]["stream_seq"] == 3
    world.ask("CONSUMER.DELETE.S.A")
    assert messages(world) == 3


@pytest.mark.feature("2.057")
@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_a_message_that_was_given_up_is_kept_and_one_without_acks_is_not(retention: str) -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], retention=retention)
    consumer(world, "A", filter_subject="s.a", max_deliver=1, ack_wait=1_000_000_000)
    world.publish("s.a")
    world.run()
    assert len(fetch(world, "A", 1)) == 1
    world.pass_time(3)
    assert fetch(world, "A", 1) == []
    assert messages(world) == 1
    if retention == "interest":
        consumer(world, "N", filter_subject="s.n", ack_policy="none")
        world.publish("s.n")
        world.run()
        assert messages(world) == 2
        assert len(fetch(world, "N", 1)) == 1
        assert [m.subject for m in world.messages("S")] == ["s.a"]


@pytest.mark.feature("2.061")
def test_a_filtered_purge_moves_those_who_want_nothing_else() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"])
    consumer(world, "Same", filter_subject="s.a")
    consumer(world, "Wide")
    for subject in ("s.a", "s.b", "s.a", "s.a"):
        world.publish(subject)
    world.run()
    fetch(world, "Same", 1)
    fetch(world, "Wide", 2)
    assert world.ask("STREAM.PURGE.S", {"filter": "s.a"})["purged"] == 3
    world.run()
    same, wide = (world.ask(f"CONSUMER.INFO.S.{name}") for name in ("Same", "Wide"))
    assert (same["num_pending"], same["num_ack_pending"]) == (0, 0)
    assert (wide["num_pending"], wide["num_ack_pending"]) == (0, 1)
    assert same["delivered"]["stream_seq"] == 4
    assert len(fetch(world, "Same", 5)) == 0


SERVERS_OWN = (
    "Nats-Response-Type",
    "Nats-Msg-Size",
    "Nats-Pending-Messages",
    "Nats-Pending-Bytes",
    "Nats-Last-Consumer",
    "Nats-Last-Stream",
    "Nats-Last-Sequence",
    "Nats-Stream",
    "Nats-Sequence",
    "Nats-Time-Stamp",
    "Nats-Subject",
    "Nats-Num-Pending",
    "Nats-UpTo-Sequence",
)


@pytest.mark.feature("3.025")
@pytest.mark.parametrize("name", SERVERS_OWN)
def test_headers_of_the_server_mean_nothing_from_a_client(name: str) -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_rollup_hdrs=True, allow_msg_ttl=True)
    assert published(world, "s.a", b"x", f"{name}: 7") == {"stream": "S", "seq": 1}
    (kept,) = world.messages("S")
    assert kept.headers == f"NATS/1.0\r\n{name}: 7\r\n\r\n".encode()


@pytest.mark.feature("1.102")
def test_the_system_account_asks_by_domain_too() -> None:
    world = EngineWorld(Options(jetstream=JetStreamOptions(domain="hub")))
    system = world.world.broker.system_account
    told: list[bytes] = []
    system.subscribe("r.s", lambda subject, reply, headers, body, pattern: told.append(body))
    world.create("S")
    for prefix in ("$JS.API", "$JS.hub.API"):
        system.publish(f"{prefix}.ACCOUNT.PURGE.$G", "r.s")
        world.run()
    assert len(told) == 2
    assert json.loads(told[1])["initiated"]
    assert world.ask("STREAM.NAMES")["streams"] is None
