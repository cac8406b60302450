"""Dead letters: what a consumer gives up on goes to a subject of its own, once and whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sim.world import Heard, SimWorld

SUBJECT = "martlet.dead_letter_subject"
MS = 1_000_000
Fields = dict[str, str]


@pytest.fixture(params=["memory", "file"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SimWorld]:
    world = SimWorld(tmp_path if request.param == "file" else None)
    storage = {"storage": request.param}
    world.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **storage})
    world.ask("STREAM.CREATE.DEAD", {"name": "DEAD", "subjects": ["dead.>"], **storage})
    yield world
    world.close()


def create(world: SimWorld, **config: Any) -> dict[str, Any]:
    config = {
        "durable_name": "C", "ack_policy": "explicit", "ack_wait": 500 * MS, "max_deliver": 2,
        "metadata": {SUBJECT: "dead.orders"}, **config,
    }  # fmt: skip
    return world.ask("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})


def pull(world: SimWorld, batch: int = 10, **more: Any) -> list[Heard]:
    world.settle()
    world.listen("pulled", "p.1")
    body = json.dumps({"batch": batch, "no_wait": True, **more}).encode()
    world.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, reply="p.1")
    world.settle()
    found = [heard for heard in world.queues.pop("pulled", []) if heard.place]
    world.unlisten("pulled")
    return found


def letters(world: SimWorld) -> list[tuple[str, Fields, bytes]]:
    """Subject, fields and payload of all that is in the stream of dead letters."""
    store, found = world.stream("DEAD").store, []
    message = store.load_next(1)
    while message is not None:
        lines = message.headers.decode().split("\r\n")[1:]
        fields = dict(line.split(": ", 1) for line in lines if line)
        found.append((message.subject, fields, message.payload))
        message = store.load_next(message.seq + 1)
    return found


@pytest.mark.feature("5.040")
def test_at_max_deliver_with_its_headers_and_why(world: SimWorld) -> None:
    create(world)
    world.publish("s.a", b"body", head="NATS/1.0\r\nKey: value\r\n\r\n")
    world.listen("events", "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    for _ in range(2):
        assert len(pull(world)) == 1
        assert letters(world) == []
        world.pass_time(0.6)
    ((subject, fields, payload),) = letters(world)
    assert (subject, payload, fields["Key"]) == ("dead.orders", b"body", "value")
    told = {key.removeprefix("Martlet-Dead-Letter-"): value for key, value in fields.items()}
    assert (told["Reason"], told["Deliveries"]) == ("max_deliveries", "2")
    assert (told["Stream"], told["Consumer"]) == ("S", "C")
    assert (told["Subject"], told["Sequence"]) == ("s.a", "1")
    assert len(world.queues["events"]) == 1
    assert world.stream("S").state().messages == 1


def test_terminated_with_the_reason(world: SimWorld) -> None:
    create(world, max_deliver=-1)
    world.publish("s.a", b"bad")
    (heard,) = pull(world)
    world.publish(heard.reply, b"+TERM cannot be parsed\r\nat all")
    world.settle()
    ((_, fields, payload),) = letters(world)
    assert payload == b"bad"
    assert fields["Martlet-Dead-Letter-Reason"] == "terminated"
    assert fields["Martlet-Dead-Letter-Description"] == "cannot be parsed at all"


def test_terminated_where_all_before_it_is_acknowledged(world: SimWorld) -> None:
    create(world, ack_policy="all")
    for number in range(3):
        world.publish("s.a", b"%d" % number)
    heard = pull(world)
    world.publish(heard[1].reply, b"+TERM")
    world.settle()
    assert [payload for _, _, payload in letters(world)] == [b"1"]


def test_on_a_work_queue_the_message_moves(world: SimWorld) -> None:
    world.ask("STREAM.DELETE.S")
    storage = world.stream("DEAD").config.storage
    queue = {"name": "S", "subjects": ["s.>"], "retention": "workqueue", "storage": storage}
    world.ask("STREAM.CREATE.S", queue)
    create(world)
    world.publish("s.a", b"once")
    (heard,) = pull(world)
    world.publish(heard.reply, b"+TERM")
    world.settle()
    assert [payload for _, _, payload in letters(world)] == [b"once"]
    assert world.stream("S").state().messages == 0


def test_acknowledged_or_removed_is_no_dead_letter(world: SimWorld) -> None:
    create(world)
    for number in range(3):
        world.publish("s.a", b"%d" % number)
    heard = pull(world)
    world.publish(heard[0].reply, b"+ACK")
    world.ask("STREAM.MSG.DELETE.S", {"seq": 2})
    world.ask("STREAM.PURGE.S")
    world.pass_time(3)
    assert letters(world) == []


def test_headers_that_a_stream_acts_upon_stay_behind(world: SimWorld) -> None:
    create(world, max_deliver=1)
    head = "NATS/1.0\r\nNats-Msg-Id: one\r\nNats-Expected-Stream: S\r\nOther: kept\r\n\r\n"
    world.publish("s.a", b"x", head=head)
    pull(world)
    world.pass_time(0.6)
    ((_, fields, _),) = letters(world)
    assert fields["Other"] == "kept"
    assert "Nats-Expected-Stream" not in fields
    assert fields["Nats-Msg-Id"].startswith("S.C.")


def test_a_thousand_at_once(world: SimWorld) -> None:
    create(world, max_deliver=1, max_ack_pending=-1)
    for number in range(1000):
        world.publish("s.a", b"%d" % number)
    assert len(pull(world, 1000)) == 1000
    world.pass_time(1)
    assert [payload for _, _, payload in letters(world)] == [b"%d" % n for n in range(1000)]


@pytest.mark.feature("5.039")
def test_many_that_are_overdue_come_again_in_order(world: SimWorld) -> None:
    create(world, max_deliver=-1, max_ack_pending=-1)
    for number in range(1000):
        world.publish("s.a", b"%d" % number)
    assert len(pull(world, 1000)) == 1000
    world.pass_time(1)
    assert [heard.payload for heard in pull(world, 1000)] == [b"%d" % n for n in range(1000)]


@pytest.mark.parametrize(
    ("subject", "why"),
    [("dead.*", "without wildcards"), ("", "without wildcards"), ("s.x", "to the same consumer")],
)
def test_refused_where_it_cannot_go(world: SimWorld, subject: str, why: str) -> None:
    error = create(world, metadata={SUBJECT: subject})["error"]
    assert (error["code"], error["err_code"]) == (400, 10094)
    assert why in error["description"]


def test_another_subject_of_the_stream_may_take_them(world: SimWorld) -> None:
    answer = create(world, metadata={SUBJECT: "s.dead"}, filter_subject="s.a")
    assert "error" not in answer
