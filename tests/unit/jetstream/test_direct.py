"""Direct gets of a subject's last message: the short way in C and the way of all other requests."""

from __future__ import annotations

import pytest

from server.jetstream._ingest import StreamSink
from server.jetstream.ingest import StreamIngest
from tests.unit.jetstream.engine_world import EngineWorld

SUBJECTS = ["s.a", "s.b", "s.c", "s.ü", "s.gone", "s.none", "s.*", "s.>", "*.b", ">"]


def answer(world: EngineWorld, subject: str, body: bytes, headers: bytes = b"") -> bytes:
    """What comes to a request on a stream's subject with `subject` behind it."""
    target = f"$JS.API.DIRECT.GET.S{'.' if subject else ''}{subject}".encode()
    verb, sizes = (b"HPUB", b"%d " % len(headers)) if headers else (b"PUB", b"")
    line = b"%b %b r.1 %b%d\r\n" % (verb, target, sizes, len(headers + body))
    said = world.client.say(line + headers + body + b"\r\n")
    world.run()
    return said + world.client.take()


def sink_of(world: EngineWorld) -> StreamSink:
    ingest = world.stream("S").ingest
    assert isinstance(ingest, StreamIngest)
    return ingest.sink


def at_once(world: EngineWorld) -> int:
    """How many requests were answered without Python."""
    ingest = world.stream("S").ingest
    assert isinstance(ingest, StreamIngest)
    return ingest.direct.answered_at_once


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


@pytest.mark.feature("4.006", "4.007")
@pytest.mark.parametrize("subject", ["s.a", "s.b", "s.c"])
def test_both_forms_are_answered_at_once_as_the_long_way_would(
    world: EngineWorld, subject: str
) -> None:
    body = b'{"last_by_subj":"%b"}' % subject.encode()
    long_way = answer(world, "", b" " + body)
    assert at_once(world) == 0
    assert long_way.count(b"HMSG r.1 ") == 1
    assert answer(world, "", body) == long_way
    assert answer(world, subject, b"") == long_way
    assert at_once(world) == 2


@pytest.mark.feature("4.006")
@pytest.mark.parametrize(
    "body",
    [
        b'{"last_by_subj":""}',
        b'{"last_by_subj":"s.*"}',
        b'{"last_by_subj":">"}',
        b'{"last_by_subj":"s.b","batch":1}',
        b'{"last_by_subj":"s.b","seq":1}',
        b'{"last_by_subj":"s.b\\u0000"}',
        b'{"last_by_subj":"s.none"}',
        b'{"last_by_subj":"s\t.b"}',
        b'{"last_by_subj":"',
        b'{"last_by_subj":"s.b"',
        b'{"last_by_subj":s.b"}',
        b'"}',
        b"{}",
        b"",
    ],
)
def test_unusual_requests_go_the_long_way(world: EngineWorld, body: bytes) -> None:
    said = answer(world, "", body)
    assert said.count(b"HMSG r.1 ") == 1
    assert at_once(world) == 0


@pytest.mark.feature("4.006")
def test_a_request_with_headers_goes_the_long_way(world: EngineWorld) -> None:
    block = b"NATS/1.0\r\nNats-Required-Api-Level: 1000\r\n\r\n"
    assert b"412 Required Api Level" in answer(world, "s.b", b"", block)
    assert b"\r\nNats-Sequence: 7\r\n" in answer(world, "s.b", b"", b"NATS/1.0\r\nA: b\r\n\r\n")
    assert at_once(world) == 0


@pytest.mark.feature("4.006")
def test_what_is_not_durable_yet_is_not_shown(world: EngineWorld) -> None:
    sink = sink_of(world)
    sink.shown_seq = 6
    assert b"\r\nNats-Sequence: 3\r\n" in answer(world, "s.b", b"")
    assert at_once(world) == 0
    sink.shown_seq = 7
    assert b"\r\nNats-Sequence: 7\r\n" in answer(world, "s.b", b"")
    assert at_once(world) == 1


@pytest.mark.feature("4.006")
@pytest.mark.parametrize("size", [0, 1, 1900, 2048, 2049, 5000, 300_000])
def test_small_and_large_values_come_whole(world: EngineWorld, size: int) -> None:
    value = bytes(i % 251 for i in range(size))
    world.publish("s.big", value)
    world.run()
    world.client.take()
    said = answer(world, "s.big", b"")
    assert said.endswith(b"\r\n\r\n" + value + b"\r\n")
    assert said == answer(world, "s.big", b"{}")
    assert at_once(world) == 1


@pytest.mark.feature("4.006")
@pytest.mark.parametrize(
    "time_ns",
    [0, 1, 999_999_999, 1_700_000_000_000_000_000, 1_709_251_199_120_000_000, -1, -5 * 10**17],
)
def test_times_are_spelled_as_everywhere(world: EngineWorld, time_ns: int) -> None:
    sink_of(world).store_message(b"s.t", b"", b"x", ts_ns=time_ns)
    world.run()
    assert b"Nats-Time-Stamp: " in answer(world, "s.t", b"{}")
    assert answer(world, "s.t", b"") == answer(world, "s.t", b"{}")


@pytest.mark.feature("4.006")
def test_an_answer_that_the_stream_itself_stores(world: EngineWorld) -> None:
    """What was read may move while it is on its way."""
    world.update("S", subjects=["s.>"], allow_direct=True, max_msgs_per_subject=1)
    world.publish("s.loop", b"v" * 3000)
    world.run()
    for _ in range(50):
        world.client.say(b"PUB $JS.API.DIRECT.GET.S.s.loop s.loop 0\r\n\r\n")
    world.run()
    last = world.messages("S")[-1]
    assert (last.subject, last.payload) == ("s.loop", b"v" * 3000)
    assert last.headers.count(b"Nats-Sequence: ") == 50


@pytest.mark.feature("4.008")
def test_nobody_answers_for_a_stream_that_does_not_allow_it(world: EngineWorld) -> None:
    world.update("S", subjects=["s.>"], allow_direct=False)
    assert b"NATS/1.0 503\r\n" in answer(world, "s.b", b"")
    world.update("S", subjects=["s.>"], allow_direct=True)
    assert b"\r\nNats-Sequence: 7\r\n" in answer(world, "s.b", b"")
