"""Mirrors and sources over memory: when the origin goes, comes again, is changed or refuses."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from server.jetstream.config import ExternalStream, StreamSource, SubjectTransformConfig
from server.jetstream.origins import (
    identity,
    index_name,
    is_of,
    read_header,
    source_header,
)
from server.jetstream.shorthash import short_hash
from tests.unit.jetstream.engine_world import EngineWorld

STREAM_NOT_FOUND = 10059
SECOND = 1_000_000_000


def origin_of(message: Any) -> tuple[str, int]:
    """Origin and sequence that a sourced message tells."""
    line = next(x for x in message.headers.split(b"\r\n") if x.startswith(b"Nats-Stream-Source"))
    words = line.split()
    return words[1].decode(), int(words[2])


@pytest.mark.feature("7.007", "7.017")
def test_an_origin_that_comes_later_is_copied_at_once() -> None:
    world = EngineWorld()
    world.create("M", mirror={"name": "O"})
    world.create("T", sources=[{"name": "O"}])
    assert world.info("M")["mirror"]["error"]["err_code"] == STREAM_NOT_FOUND
    assert world.info("T")["sources"][0]["error"]["err_code"] == STREAM_NOT_FOUND
    assert world.info("T")["sources"][0]["active"] == -1
    world.create("O", subjects=["o.>"])
    world.publish("o.a")
    world.run()
    assert [m.seq for m in world.messages("M")] == [1]
    assert [origin_of(m) for m in world.messages("T")] == [("O", 1)]
    assert "error" not in world.info("M")["mirror"]
    assert "error" not in world.info("T")["sources"][0]


@pytest.mark.feature("7.021")
def test_sources_of_a_recreated_origin_start_from_its_beginning() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    world.create("T", sources=[{"name": "O"}])
    for _ in range(3):
        world.publish("o.a")
    world.ask("STREAM.DELETE.O")
    assert world.info("T")["sources"][0]["error"]["err_code"] == STREAM_NOT_FOUND
    world.world.now_ns += 1
    world.create("O", subjects=["o.>"])
    world.publish("o.b")
    world.publish("o.c")
    world.run()
    assert [origin_of(m)[1] for m in world.messages("T")] == [1, 2, 3, 1, 2]
    assert any("made again" in text for text in world.warnings)
    assert "error" not in world.info("T")["sources"][0]


@pytest.mark.feature("7.021")
def test_a_mirror_keeps_what_it_has_when_its_origin_is_made_again_and_says_so() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    world.create("M", mirror={"name": "O"})
    for number in range(3):
        world.publish("o.a", b"old %d" % number)
    world.ask("STREAM.DELETE.O")
    world.world.now_ns += 1
    world.create("O", subjects=["o.>"])
    world.publish("o.a", b"new 0")
    world.run()
    assert [m.payload for m in world.messages("M")] == [b"old 0", b"old 1", b"old 2"]
    assert "goes on behind sequence 3" in world.info("M")["mirror"]["error"]["description"]
    for number in range(1, 4):
        world.publish("o.a", b"new %d" % number)
    world.run()
    assert [m.payload for m in world.messages("M")][3:] == [b"new 3"]
    assert "error" not in world.info("M")["mirror"]


@pytest.mark.feature("7.013")
def test_a_full_target_that_discards_new_takes_the_rest_when_it_has_room() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    world.create("T", sources=[{"name": "O"}], discard="new", max_msgs=2)
    for _ in range(5):
        world.publish("o.a")
    world.run()
    assert [origin_of(m)[1] for m in world.messages("T")] == [1, 2]
    source = world.info("T")["sources"][0]
    assert source["lag"] > 0
    assert "error" not in source
    for seq in (1, 2):
        world.ask("STREAM.MSG.DELETE.T", {"seq": seq})
    world.pass_time(1)
    assert [origin_of(m)[1] for m in world.messages("T")] == [3, 4]
    world.update("T", sources=[{"name": "O"}], discard="new", max_msgs=20)
    world.pass_time(1)
    assert [origin_of(m)[1] for m in world.messages("T")] == [3, 4, 5]


def test_what_a_target_cannot_take_is_told_and_nothing_behind_it_is_left_out() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    world.create("M", mirror={"name": "O"}, max_msg_size=10)
    world.create("T", sources=[{"name": "O"}], max_msg_size=100)
    world.publish("o.a", b"small")
    world.publish("o.a", b"x" * 200)
    world.publish("o.a", b"small")
    world.run()
    for name, kind in (("M", "mirror"), ("T", "sources")):
        assert len(world.messages(name)) == 1
        told = world.info(name)[kind]
        told = told[0] if kind == "sources" else told
        assert told["error"]["err_code"] == 10054
    assert sum("cannot take" in text for text in world.warnings) == 2
    world.update("M", mirror={"name": "O"}, max_msg_size=-1)
    world.update("T", sources=[{"name": "O"}], max_msg_size=-1)
    world.pass_time(1)
    assert [len(world.messages(name)) for name in ("M", "T")] == [3, 3]
    assert "error" not in world.info("M")["mirror"]


@pytest.mark.feature("7.019")
def test_a_promoted_mirror_hears_subjects_and_its_origin_no_more() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    world.create("M", mirror={"name": "O"})
    world.publish("o.a", b"1")
    world.run()
    world.update("M", subjects=["m.>"])
    world.publish("o.a", b"2")
    world.publish("m.a", b"3")
    world.run()
    assert [m.payload for m in world.messages("M")] == [b"1", b"3"]
    assert "mirror" not in world.info("M")
    assert world.stream("O").interest == []


@pytest.mark.feature("7.020")
def test_a_source_that_is_removed_and_added_again_goes_on_where_it_was() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    both = [{"name": "O", "filter_subject": "o.a"}, {"name": "O", "filter_subject": "o.b"}]
    world.create("T", sources=both)
    world.publish("o.a")
    world.publish("o.b")
    world.update("T", sources=both[:1])
    world.ask("STREAM.PURGE.T")
    world.publish("o.b")
    world.publish("o.a")
    world.update("T", sources=both)
    world.run()
    assert sorted(origin_of(m)[1] for m in world.messages("T")) == [3, 4]


@pytest.mark.feature("7.004", "7.013")
def test_what_a_queue_hands_over_goes_only_when_the_copy_took_it() -> None:
    world = EngineWorld()
    world.create("Q", subjects=["q.>"], retention="workqueue")
    world.create("T", sources=[{"name": "Q"}], discard="new", max_msgs=3)
    for _ in range(5):
        world.publish("q.a")
    world.pass_time(3)
    assert [origin_of(m)[1] for m in world.messages("T")] == [1, 2, 3]
    assert [m.seq for m in world.messages("Q")] == [4, 5]
    world.update("T", sources=[{"name": "Q"}], discard="new", max_msgs=-1)
    world.pass_time(3)
    assert [origin_of(m)[1] for m in world.messages("T")] == [1, 2, 3, 4, 5]
    assert world.messages("Q") == []


@pytest.mark.feature("7.004")
def test_a_consumer_tells_when_flow_control_acknowledged_last() -> None:
    world = EngineWorld()
    world.create("Q", subjects=["q.>"], retention="workqueue")
    world.create("T", sources=[{"name": "Q"}])
    world.run()
    name = next(iter(world.stream("Q").consumers))
    assert "last_active" not in world.ask(f"CONSUMER.INFO.Q.{name}")["ack_floor"]
    world.publish("q.a")
    world.pass_time(3)
    floor = world.ask(f"CONSUMER.INFO.Q.{name}")["ack_floor"]
    assert (floor["consumer_seq"], floor["stream_seq"]) == (1, 1)
    assert "last_active" in floor


@pytest.mark.feature("7.004")
def test_a_queue_whose_consumer_is_deleted_is_asked_again() -> None:
    world = EngineWorld()
    world.create("Q", subjects=["q.>"], retention="workqueue")
    world.create("T", sources=[{"name": "Q"}])
    world.publish("q.a")
    world.pass_time(2)
    name = next(iter(world.stream("Q").consumers))
    world.ask(f"CONSUMER.DELETE.Q.{name}")
    world.publish("q.a")
    world.pass_time(3)
    assert [origin_of(m)[1] for m in world.messages("T")] == [1, 2]
    assert list(world.stream("Q").consumers) == [name]
    assert world.messages("Q") == []


@pytest.mark.feature("7.006", "2.041")
def test_a_consumer_that_is_to_be_given_and_is_not_there_is_waited_for() -> None:
    world = EngineWorld()
    world.create("Q", subjects=["q.>"], retention="workqueue")
    given = {"name": "C", "deliver_subject": "deliver.C"}
    world.create("T", sources=[{"name": "Q", "consumer": given}])
    world.publish("q.a")
    world.run()
    assert world.info("T")["sources"][0]["error"]["err_code"] == 10014
    config = {
        "durable_name": "C",
        "deliver_subject": "deliver.C",
        "ack_policy": "flow_control",
        "flow_control": True,
        "idle_heartbeat": SECOND,
    }
    world.ask("CONSUMER.CREATE.Q.C", {"stream_name": "Q", "config": config})
    world.pass_time(3)
    assert [origin_of(m)[1] for m in world.messages("T")] == [1]
    assert "error" not in world.info("T")["sources"][0]
    world.ask("STREAM.DELETE.T")
    assert list(world.stream("Q").consumers) == ["C"], "it was not ours to delete"


@pytest.mark.feature("7.004")
def test_an_origin_that_begins_to_wait_for_consumers_keeps_what_is_not_copied() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    world.create("T", sources=[{"name": "O"}], discard="new", max_msgs=2)
    for _ in range(4):
        world.publish("o.a")
    world.run()
    world.update("O", subjects=["o.>"], retention="interest")
    world.pass_time(3)
    assert len(world.stream("O").consumers) == 1
    world.publish("o.a")
    world.update("T", sources=[{"name": "O"}])
    world.pass_time(3)
    brought = [origin_of(m)[1] for m in world.messages("T")]
    assert brought[:2] == [1, 2]
    assert brought[-1] == 5


def test_more_than_a_slice_and_more_than_may_wait_come_over_whole() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    for number in range(20_000):
        world.client.server_side.feed(b"PUB o.%d 1\r\nx\r\n" % (number % 7))
    world.run()
    world.create("M", mirror={"name": "O"})
    world.create("T", sources=[{"name": "O", "filter_subject": "o.3"}])
    world.run(30)
    assert world.stream("M").state().messages == 20_000
    assert [origin_of(m)[1] for m in world.messages("T")] == list(range(4, 20_001, 7))


@pytest.mark.feature("2.039")
def test_external_with_the_prefix_of_the_own_domain_only() -> None:
    world = EngineWorld()
    world.engine.domain = "hub"
    world.create("O", subjects=["o.>"])
    world.publish("o.a")
    for name, api in (("A", "$JS.hub.API"), ("B", "$JS.leaf.API")):
        world.create(name, mirror={"name": "O", "external": {"api": api, "deliver": ""}})
    world.run()
    assert len(world.messages("A")) == 1
    assert world.info("B")["mirror"]["error"]["err_code"] == STREAM_NOT_FOUND


@pytest.mark.feature("7.009")
def test_names_and_headers_as_the_reference_writes_them() -> None:
    plain = StreamSource(name="O", filter_subject="o.a")
    assert index_name(plain) == "O o.a >"
    assert index_name(StreamSource(name="O")) == "O > >"
    both = StreamSource(
        name="O",
        external=ExternalStream(api="$JS.hub.API"),
        subject_transforms=[SubjectTransformConfig("a", "b"), SubjectTransformConfig("", "")],
    )
    assert index_name(both) == f"O:{short_hash('$JS.hub.API')} a\f> b\f>"
    text = source_header(index_name(plain), 7, "o.a", identity(0)).decode()
    assert text == f"O 7 o.a > o.a {identity(0)}"
    mark = read_header(text)
    assert mark is not None
    assert (mark.seq, mark.identity) == (7, identity(0))
    assert is_of(mark, plain)
    assert not is_of(mark, StreamSource(name="O"))


@pytest.mark.parametrize(
    ("text", "seq"),
    [
        ("O 7", 7),
        ("$JS.ACK.O.C.1.7.1.0.0", 7),
        ("$JS.ACK._.HASH.O.C.1.7.1.0.0.x", 7),
        ("O 7 >", None),
        ("O x", None),
        ("", None),
        ("$JS.ACK.O.C.1.x.1.0.0", None),
    ],
)
def test_headers_of_earlier_versions(text: str, seq: int | None) -> None:
    mark = read_header(text)
    assert (mark.seq if mark is not None else None) == seq
    if mark is not None:
        assert is_of(mark, StreamSource(name="O"))
        assert not is_of(mark, StreamSource(name="P"))


class Story:
    """Random events at an origin, its mirror and a stream that sources parts of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = EngineWorld()
        self.published: dict[int, bytes] = {}
        self.world.create("O", subjects=["o.>"])
        self.world.create("M", mirror={"name": "O"})
        self.world.create("T", sources=self.sources())

    def sources(self) -> list[dict[str, Any]]:
        return [{"name": "O", "filter_subject": f"o.{letter}"} for letter in "ab"]

    def step(self) -> None:
        rng, world = self.rng, self.world
        match rng.randrange(10):
            case 0:
                world.ask("STREAM.PURGE.O", {"keep": rng.randrange(5)})
            case 1:
                world.ask("STREAM.MSG.DELETE.O", {"seq": rng.randrange(1, 50)})
            case 2:
                world.update("T", sources=self.sources()[: rng.randrange(1, 3)])
            case 3:
                world.update("O", subjects=["o.>"], max_msgs=rng.choice([-1, 5, 50]))
            case 4:
                world.ask("STREAM.PURGE.M", {"keep": 3})
            case _:
                for _ in range(rng.randrange(1, 9)):
                    payload = b"%d" % rng.randrange(10**9)
                    world.publish(f"o.{rng.choice('abc')}", payload)
                    self.published[world.stream("O").store.last_seq] = payload

    def check(self) -> None:
        world = self.world
        world.update("T", sources=self.sources())
        world.run()
        live = {m.seq: m for m in world.messages("O")}
        mirrored = {m.seq: m for m in world.messages("M")}
        for seq, message in mirrored.items():
            assert message.payload == self.published[seq]
            assert seq not in live or live[seq].ts_ns == message.ts_ns
        first = world.stream("M").store.first_seq
        assert [seq for seq in live if seq >= first and seq not in mirrored] == []
        brought = [(m.subject, origin_of(m)[1]) for m in world.messages("T")]
        for letter in "ab":
            own = [seq for subject, seq in brought if subject == f"o.{letter}"]
            assert own == sorted(set(own)), "in order, each once"
            there = {seq for seq, m in live.items() if m.subject == f"o.{letter}"}
            assert there <= set(own), "nothing that is there was left out"


@pytest.mark.feature("7.007", "7.009", "7.011")
@pytest.mark.parametrize("seed", range(40))
def test_any_story_ends_with_true_copies(seed: int) -> None:
    story = Story(seed)
    for _ in range(60):
        story.step()
    story.check()


def copies(world: EngineWorld, name: str) -> list[tuple[int, str, bytes, bytes]]:
    return [(m.seq, m.subject, m.headers, m.payload) for m in world.messages(name)]


def without_plain_copies(world: EngineWorld) -> None:
    """From now on every message goes through Python."""
    for stream in world.engine.streams():
        for copier in stream.inflow.copiers() if stream.inflow is not None else ():
            copier.made_plain = lambda origin: None  # type: ignore[method-assign]


@pytest.mark.feature("7.007", "7.009")
@pytest.mark.parametrize("seed", range(20))
def test_plain_messages_are_copied_the_same_by_either_way(seed: int) -> None:
    told = []
    for is_plain in (True, False):
        rng = random.Random(seed)
        world = EngineWorld()
        world.create("M", mirror={"name": "O", "filter_subject": "o.*"}, max_msgs=150)
        world.create("T", sources=[{"name": "O"}], max_msgs_per_subject=40)
        world.create("U", sources=[{"name": "T", "filter_subject": "o.1"}])
        world.create("S", sources=[{"name": "O"}], max_msg_size=400, discard="new", max_msgs=90)
        if not is_plain:
            without_plain_copies(world)
        world.create("O", subjects=["o.>"])
        for number in range(200):
            fields = rng.choice([[], [], ["Mine: 1"], [f"Nats-Msg-Id: {number}"], ["A: b"] * 30])
            world.publish(f"o.{rng.randrange(9)}", b"x" * rng.randrange(300), *fields)
            if rng.randrange(20) == 0:
                world.ask("STREAM.MSG.DELETE.O", {"seq": rng.randrange(1, number + 2)})
        world.pass_time(1)
        world.publish("o.1.2")
        world.publish("o.1")
        world.pass_time(1)
        told.append([copies(world, name) for name in "MTUS"])
        states = [world.info(name)["state"] for name in "MTUS"]
        told[-1].append([(s["bytes"], s["messages"], s["last_seq"]) for s in states])
        inflow = world.stream("T").inflow
        assert inflow is not None
        assert all((c.plain is not None) == is_plain for c in inflow.copiers())
    assert told[0] == told[1]


def test_where_limits_of_the_account_end_copying_it_goes_on_when_there_is_room() -> None:
    world = EngineWorld()
    world.create("O", subjects=["o.>"])
    for _ in range(200):
        world.publish("o.a", b"x" * 100)
    world.run()
    usage = world.ingests.usages.of(world.stream("O"))
    owner = world.engine.accounts["$G"]
    owner.limits = replace(owner.limits, max_memory_bytes=usage.used + 5_000)
    world.create("M", mirror={"name": "O"})
    world.run()
    copied = len(world.messages("M"))
    assert 10 < copied < 60
    assert world.info("M")["mirror"]["error"]["err_code"] == 10002
    usage.max = -1
    world.pass_time(1)
    assert len(world.messages("M")) == 200
