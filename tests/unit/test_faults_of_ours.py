"""What raises where it never should costs the one it was done for; everybody else goes on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from server.app import App
from server.core._client import Client
from server.jetstream._commit import LocalCommit
from server.jetstream.api import streams
from server.jetstream.stream import Stream
from server.jetstream.timers import Timers
from server.jetstreaming import JetStream
from tests.unit.jetstream.engine_world import EngineWorld
from tests.unit.memory_client import MODERN, QUIET, RecordingHooks, World


class FailingHooks(RecordingHooks):
    """Fails for the first client that asks for its second INFO."""

    def on_first_pong(self, client: Client) -> bytes | None:
        if client.cid == 1:
            raise RuntimeError("no INFO today")
        return None


def test_a_ping_whose_answer_fails_ends_that_client_only() -> None:
    hooks = FailingHooks()
    world = World(hooks)
    unlucky = world.client()
    lucky = world.client(QUIET)
    unlucky.say(MODERN + b"PING\r\n")
    assert unlucky.transport_closed
    assert hooks.closed == [(1, "Internal Client")]
    assert ("error", "Internal error: RuntimeError('no INFO today')") in hooks.lines
    assert lucky.say(b"SUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n") == b"MSG a 1 1\r\nx\r\nPONG\r\n"


def test_a_phase_that_fails_keeps_no_other_from_its_turn() -> None:
    world = World()
    turn = world.broker.turn
    ran: list[str] = []

    def fail() -> None:
        ran.append("fails")
        raise RuntimeError("a phase")

    early = turn.phase(2, fail)
    late = turn.phase(6, lambda: ran.append("runs"))
    client = world.client(QUIET)
    early.mark()
    late.mark()
    client.server_side.feed(b"PING\r\n")
    with pytest.raises(RuntimeError, match="a phase"):
        turn.run()
    assert ran == ["fails", "runs"]
    assert client.take() == b"PONG\r\n"
    late.mark()
    turn.run()
    assert ran == ["fails", "runs", "runs"]


class Bell:
    armed_ns: int | None = None

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.rung = 0

    def tick(self, now_ns: int) -> None:
        self.rung += 1
        if self.fails:
            raise RuntimeError("a bell")


def test_a_timer_that_fails_keeps_no_other_from_its_time() -> None:
    timers, broken, whole = Timers(), Bell(True), Bell(False)
    timers.arm(broken, 1)
    timers.arm(whole, 2)
    with pytest.raises(RuntimeError, match="a bell"):
        timers.run(3)
    assert (broken.rung, whole.rung) == (1, 1)


def test_a_request_that_fails_inside_is_answered_and_the_next_one_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = EngineWorld()
    world.create("S", subjects=["s"])

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("inside")

    with monkeypatch.context() as patched:
        patched.setattr(streams, "stream_info", fail)
        answer = world.ask("STREAM.INFO.S")
    assert answer["error"] == {"code": 500, "err_code": 10051, "description": "internal error"}
    assert "ZeroDivisionError('inside')" in world.warnings[0]
    assert world.info("S")["state"]["messages"] == 0


def test_a_stream_whose_time_fails_is_down_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = EngineWorld()
    stream: Stream = world.create("S", subjects=["s"], max_age=1_000_000_000)
    world.create("T", subjects=["t"], max_age=1_000_000_000)
    world.publish("s")
    world.publish("t")
    monkeypatch.setattr(stream.ingest.publisher, "tick", lambda now_ns: 1 // 0)
    world.pass_time(3)
    assert world.info("T")["state"]["messages"] == 0
    refused = world.request("s", b"x")
    assert b"stream is down: integer division or modulo by zero" in refused


def test_a_reply_subject_of_any_bytes_is_answered() -> None:
    world = EngineWorld()
    said = world.client.say(b"SUB \xffr 2\r\nPUB $JS.API.INFO \xffr 0\r\n\r\n")
    world.run()
    said += world.client.take()
    assert said.startswith(b"MSG \xffr 2 ")


def test_a_message_that_breaks_its_stream_is_refused_like_those_behind_it() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s"], first_seq=2**64 - 1)
    assert b'"seq":18446744073709551615' in world.request("s", b"x")
    for _ in range(2):
        assert b'"err_code":10077' in world.request("s", b"x")
    assert world.info("S")["state"]["messages"] == 1


def test_a_reply_told_in_json_that_is_none_is_no_fast_batch() -> None:
    world = EngineWorld()
    stream = world.create("S", subjects=["s"])
    block = b"NATS/1.0\r\nNats-Request-Info: {broken\r\n\r\n"
    stream.ingest.publisher(b"s", b"_R_.x", block, b"x")
    world.run()
    assert world.info("S")["state"]["messages"] == 1


class Stopped:
    """As much of the process's JetStream as healthz asks."""

    failure: str | None = None

    def __init__(self, commit: LocalCommit) -> None:
        self.commit = commit
        self.stores = SimpleNamespace(locked=[("$G", "L")])

    stopped = JetStream.stopped


@pytest.mark.feature("1.069")
def test_healthz_names_each_stream_that_stopped_on_its_own() -> None:
    world = EngineWorld()
    stream = world.create("S", subjects=["s"])
    world.create("T", subjects=["t"])
    app = SimpleNamespace(jetstream=Stopped(world.ingests.commit))
    world.ingests.commit.broken(stream.ingest.sink, ValueError("an invariant"))
    found = App.health_errors(app)  # type: ignore[arg-type]
    assert [(each["type"], each["account"], each["stream"]) for each in found] == [
        ("STREAM", "$G", "L"),
        ("STREAM", "$G", "S"),
    ]
    assert found[1]["error"] == "JetStream stream '$G > S' is down: an invariant"
    app.jetstream.failure = "no space"
    assert [each["type"] for each in App.health_errors(app)] == ["JETSTREAM"]  # type: ignore[arg-type]
