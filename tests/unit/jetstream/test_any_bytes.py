"""Subjects, ids and headers that are no text, where the server itself stores or copies again."""

from __future__ import annotations

from typing import Any

import pytest

from server.jetstream.ingest import StreamIngest
from server.jetstream.publish import Publisher
from server.jetstream.stream import Stream
from tests.unit.jetstream.engine_world import EngineWorld
from tests.unit.memory_client import SECOND_NS

ODD = b"s.\xff"
ODD_TEXT = ODD.decode("utf-8", "surrogateescape")


def say(world: EngineWorld, subject: bytes, *fields: bytes, reply: bytes = b"r.9") -> bytes:
    """Publish any bytes; what the client is told."""
    block = b"\r\n".join([b"NATS/1.0", *fields, b"", b""])
    said = world.client.say(
        b"HPUB %b %b %d %d\r\n%bx\r\n" % (subject, reply, len(block), len(block) + 1, block)
    )
    world.run()
    return said + world.client.take()


def subjects(world: EngineWorld, name: str = "S") -> list[str]:
    return [message.subject for message in world.messages(name)]


def down(stream: Stream) -> Any:
    assert isinstance(stream.ingest, StreamIngest)
    return stream.ingest.sink.down


def publisher_of(stream: Stream) -> Publisher:
    assert isinstance(stream.ingest, StreamIngest)
    return stream.ingest.publisher


@pytest.mark.feature("3.021")
def test_the_delete_marker_of_such_a_subject() -> None:
    world = EngineWorld()
    stream = world.create(
        "S", subjects=["s.>"], max_age=2 * SECOND_NS, subject_delete_marker_ttl=9 * SECOND_NS
    )
    say(world, ODD)
    world.pass_time(3)
    (marker,) = world.messages("S")
    assert (marker.subject, down(stream)) == (ODD_TEXT, None)
    assert b"Nats-Marker-Reason: MaxAge" in marker.headers


@pytest.mark.feature("3.026", "3.021")
def test_a_delete_marker_is_republished_and_the_last_message_has_no_id_any_more() -> None:
    world = EngineWorld()
    world.create(
        "S",
        subjects=["s.>"],
        max_age=2 * SECOND_NS,
        subject_delete_marker_ttl=9 * SECOND_NS,
        republish={"src": "s.>", "dest": "copy.>"},
    )
    world.client.say(b"SUB copy.> 7\r\n")
    say(world, b"s.a", b"Nats-Msg-Id: one")
    world.client.take()
    world.seen = b""
    world.pass_time(3)
    world.run()
    told = world.seen + world.client.take()
    assert b"HMSG copy.a 7 " in told
    assert b"Nats-Marker-Reason: MaxAge" in told
    assert b'"seq":3' in say(world, b"s.a", b"Nats-Expected-Last-Msg-Id: ")
    assert b"10070" in say(world, b"s.a", b"Nats-Expected-Last-Msg-Id: one")


@pytest.mark.feature("3.032")
def test_a_schedule_of_such_a_subject_fires() -> None:
    world = EngineWorld()
    stream = world.create(
        "S", subjects=["s.>"], allow_msg_schedules=True, allow_msg_ttl=True, allow_rollup_hdrs=True
    )
    say(world, ODD, b"Nats-Schedule: @every 1s", b"Nats-Schedule-Target: s.\xfe",
        b"Nats-Schedule-Source: s.\xfd")  # fmt: skip
    say(world, b"s.\xfd")
    world.pass_time(3)
    assert down(stream) is None
    assert b"s.\xfe".decode("utf-8", "surrogateescape") in subjects(world)


@pytest.mark.feature("3.017", "7.007")
def test_a_rollup_of_such_a_subject_is_stored_and_copied_once() -> None:
    world = EngineWorld()
    config = {"allow_rollup_hdrs": True, "allow_msg_ttl": True}
    stream = world.create("S", subjects=["s.>"], republish={"src": ">", "dest": "copy.>"}, **config)
    target = world.create("T", sources=[{"name": "S"}], **config)
    world.create("M", mirror={"name": "S"}, **config)
    for _ in range(2):
        assert b'"seq"' in say(world, ODD, b"Nats-Rollup: sub", b"Nats-Trace-Hop: 1")
    world.pass_time(1)
    for name in ("S", "T", "M"):
        assert subjects(world, name) == [ODD_TEXT], name
    assert (down(stream), down(target)) == (None, None)


@pytest.mark.feature("3.006")
def test_a_fault_of_ours_before_a_message_is_stored_refuses_that_message_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = EngineWorld()
    stream = world.create("S", subjects=["s.>"])
    checks = publisher_of(stream).checks
    with monkeypatch.context() as patched:
        patched.setattr(checks, "expected_stream", lambda message: 1 // 0)
        refused = say(world, b"s.a", b"Nats-Trace-Hop: 1")
    assert b'"err_code":10077' in refused
    assert b"internal error" in refused
    assert "ZeroDivisionError" in world.warnings[0]
    assert down(stream) is None
    assert b'"seq":1' in say(world, b"s.a", b"Nats-Trace-Hop: 1")


def test_a_fault_of_ours_behind_the_store_stops_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    world = EngineWorld()
    stream = world.create("S", subjects=["s.>"])
    monkeypatch.setattr(publisher_of(stream), "republish", lambda *_: 1 // 0)
    assert b"stream is down" in say(world, b"s.a", b"Nats-Trace-Hop: 1")
    assert world.ingests.commit.stopped.keys() == {stream.ingest.sink}  # type: ignore[union-attr]
    world.ask("STREAM.DELETE.S")
    assert world.ingests.commit.stopped == {}


@pytest.mark.feature("7.007")
def test_a_copier_that_fails_keeps_no_other_from_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    world = EngineWorld()
    world.create("O", subjects=["o"])
    broken = world.create("A", sources=[{"name": "O"}])
    world.create("B", sources=[{"name": "O"}])
    assert broken.inflow is not None
    (copier,) = broken.inflow.copiers()
    with monkeypatch.context() as patched:
        patched.setattr(copier, "copy", lambda supply: 1 // 0)
        world.publish("o")
        world.run()
        assert len(world.messages("B")) == 1
        assert world.info("A")["sources"][0]["error"]["err_code"] == 10051
        world.pass_time(2)
        assert ["ZeroDivisionError" in text for text in world.warnings] == [True]
    world.pass_time(1)
    assert len(world.messages("A")) == 1
    assert "error" not in world.info("A")["sources"][0]


@pytest.mark.feature("7.007")
def test_a_source_from_before_all_times_starts_at_the_beginning() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o"])
    world.publish("o")
    for name, text in (("A", "0001-01-01T00:00:00Z"), ("B", "0000-02-29T00:00:00Z")):
        world.create(name, sources=[{"name": "O", "opt_start_time": text}])
        world.run()
        assert len(world.messages(name)) == 1, text
    world.create("C", mirror={"name": "O", "opt_start_time": "9999-12-31T23:59:59-23:59"})
    world.run()
    assert world.messages("C") == []
    assert world.warnings == []


@pytest.mark.feature("2.001")
def test_half_a_surrogate_in_json_is_no_character() -> None:
    world = EngineWorld()
    for text in (r"\udc00", r"\ud800", r"\ud800\ud800", r"\udc00\ud83d"):
        body = b'{"name":"S","storage":"memory","description":"%b"}' % text.encode()
        answer = world.ask("STREAM.CREATE.S", body)
        count = text.count("\\u")
        assert answer["config"]["description"] == "\N{REPLACEMENT CHARACTER}" * count
        world.ask("STREAM.DELETE.S")
    body = rb'{"name":"S","storage":"memory","description":"\udc00\\ud800\ud83d\ude00"}'
    answer = world.ask("STREAM.CREATE.S", body)
    assert answer["config"]["description"] == "\N{REPLACEMENT CHARACTER}\\ud800\U0001f600"
