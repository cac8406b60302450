"""Many messages by DIRECT.GET: in slices, held while the requester does not read, and bounded."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from server.jetstream import directbatches
from server.jetstream.directbatches import SHARE_MESSAGES, SHARES_A_TURN
from tests.unit.jetstream.engine_world import EngineWorld


class Loop:
    """Runs what was asked for when the test says so."""

    def __init__(self, world: EngineWorld) -> None:
        self.asked: list[Callable[[], None]] = []
        world.world.broker.turn.set_call_soon(self.asked.append)

    def run_once(self) -> None:
        asked, self.asked[:] = list(self.asked), []
        for each in asked:
            each()


@pytest.fixture
def world() -> EngineWorld:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_direct=True)
    for number in range(1_000):
        world.publish("s.a", b"%d" % number)
    world.run()
    world.client.take()
    return world


def ask(world: EngineWorld, **asked: object) -> bytes:
    body = json.dumps(asked).encode()
    return world.client.say(b"PUB $JS.API.DIRECT.GET.S r.1 %d\r\n%b\r\n" % (len(body), body))


def messages(said: bytes) -> int:
    return said.count(b"\r\nNats-Stream: S\r\n")


@pytest.mark.feature("4.010")
def test_a_long_batch_lets_others_have_their_turn(world: EngineWorld) -> None:
    loop = Loop(world)
    parts = [ask(world, seq=1, batch=1_000)]
    while b"204 EOB" not in parts[-1]:
        loop.run_once()
        parts.append(world.client.take())
    counts = [messages(part) for part in parts]
    assert sum(counts) == 1_000
    assert max(counts) <= SHARE_MESSAGES * SHARES_A_TURN
    whole = b"".join(parts)
    assert whole.index(b"Nats-Sequence: 999\r\n") < whole.index(b"Nats-Sequence: 1000\r\n")
    assert b"Nats-Num-Pending: 0\r\nNats-Last-Sequence: 1000\r\n\r\n" in parts[-1]


@pytest.mark.feature("4.010")
def test_batches_share_a_turn(world: EngineWorld) -> None:
    loop = Loop(world)
    ask(world, seq=1, batch=1_000)
    said = ask(world, seq=1, batch=3)
    while b"204 EOB" not in said:
        loop.run_once()
        said += world.client.take()
    assert messages(said) < 1_000


def test_who_does_not_read_waits_and_gets_all_in_the_end(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    backed_up = [True]
    monkeypatch.setattr(directbatches, "is_backed_up", lambda account, subject: backed_up[0])
    assert ask(world, seq=1, batch=5) == b""
    world.pass_time(1)
    assert world.client.take() == b""
    backed_up[0] = False
    world.pass_time(1)
    assert messages(world.client.take()) == 5
    assert len(world.engine.direct_batches) == 0


def test_a_batch_ends_with_its_requester_or_its_stream(world: EngineWorld) -> None:
    loop = Loop(world)
    ask(world, seq=1, batch=1_000)
    world.client.say(b"UNSUB 1\r\n")
    loop.run_once()
    assert len(world.engine.direct_batches) == 0
    world.client.say(b"SUB r.> 1\r\n")
    ask(world, seq=1, batch=1_000)
    owner = world.engine.accounts["$G"]
    world.engine.delete(owner, world.stream("S"))
    said = b""
    while b"204 EOB" not in said:
        loop.run_once()
        said += world.client.take()
    assert messages(said) < 1_000


@pytest.mark.parametrize("backed_up", [False, True])
def test_none_is_answered_when_the_streams_are_closed(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch, backed_up: bool
) -> None:
    monkeypatch.setattr(directbatches, "is_backed_up", lambda account, subject: backed_up)
    loop = Loop(world)
    ask(world, seq=1, batch=1_000)
    loop.run_once()
    assert len(world.engine.direct_batches) == 1
    world.client.take()
    world.engine.close()
    assert len(world.engine.direct_batches) == 0
    loop.run_once()
    world.pass_time(1)
    assert world.client.take() == b""
    assert world.warnings == []


def test_too_many_at_a_time_are_refused(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directbatches, "BATCHES_MAX", 2)
    Loop(world)
    said = b"".join(ask(world, seq=1, batch=1_000) for _ in range(3))
    assert said.count(b"NATS/1.0 429 Too Many Requests\r\n\r\n") == 1
