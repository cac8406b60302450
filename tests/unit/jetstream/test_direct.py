"""Direct gets of a subject's last message: the short way and the way of requests with a body."""

from __future__ import annotations

import pytest

from tests.unit.jetstream.engine_world import EngineWorld

SUBJECTS = ["s.a", "s.b", "s.c", "s.ü", "s.gone", "s.none", "s.*", "s.>", "*.b", ">"]


def answer(world: EngineWorld, subject: str, body: bytes) -> bytes:
    said = world.client.say(
        f"PUB $JS.API.DIRECT.GET.S.{subject} r.1 {len(body)}\r\n".encode() + body + b"\r\n"
    )
    world.run()
    return said + world.client.take()


@pytest.fixture
def world() -> EngineWorld:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_direct=True)
    for subject in ("s.a", "s.gone", "s.b", "s.a", "s.ü", "s.c"):
        world.publish(subject, f"to {subject}".encode())
    block = b"NATS/1.0\r\nA: b\r\nA: c\r\n\r\n"
    world.client.say(b"HPUB s.b %d %d\r\n%bhello\r\n" % (len(block), len(block) + 5, block))
    world.run()
    world.client.take()
    world.ask("STREAM.MSG.DELETE.S", {"seq": 2})
    return world


@pytest.mark.feature("4.006")
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_request_without_a_body_gets_what_an_empty_object_gets(
    world: EngineWorld, subject: str
) -> None:
    short = answer(world, subject, b"")
    assert short.count(b"HMSG r.1 ") == 1
    assert short == answer(world, subject, b"{}")


@pytest.mark.feature("4.006")
def test_the_answer_keeps_the_headers_and_names_the_message(world: EngineWorld) -> None:
    said = answer(world, "s.b", b"")
    assert b"NATS/1.0\r\nA: b\r\nA: c\r\nNats-Stream: S\r\nNats-Subject: s.b\r\n" in said
    assert b"\r\nNats-Sequence: 7\r\nNats-Time-Stamp: " in said
    assert said.endswith(b"Z\r\n\r\nhello\r\n")
    assert b"NATS/1.0\r\nNats-Stream: S\r\nNats-Subject: s.a\r\n" in answer(world, "s.a", b"")


@pytest.mark.feature("4.006")
@pytest.mark.parametrize("subject", ["s.gone", "s.none", "s.none.*"])
def test_a_subject_without_a_message(world: EngineWorld, subject: str) -> None:
    assert b"NATS/1.0 404 Message Not Found\r\n\r\n" in answer(world, subject, b"")


@pytest.mark.feature("4.006")
def test_an_erased_last_message_leaves_the_one_before(world: EngineWorld) -> None:
    world.ask("STREAM.MSG.DELETE.S", {"seq": 7})
    assert b"\r\nNats-Sequence: 3\r\n" in answer(world, "s.b", b"")
