"""Rules of streams and publishing as a client sees them: an engine over memory, a moved clock."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.jetstream.engine_world import EngineWorld
from tests.unit.memory_client import SECOND_NS

HOUR_NS = 3_600 * SECOND_NS


def published(
    world: EngineWorld, subject: str, payload: bytes = b"x", *fields: str
) -> dict[str, Any]:
    """The answer to a publish with headers."""
    block = "\r\n".join(["NATS/1.0", *fields, "", ""]).encode()
    sizes = f"{len(block)} {len(block) + len(payload)}"
    said = world.client.say(f"HPUB {subject} r.9 {sizes}\r\n".encode() + block + payload + b"\r\n")
    world.run()
    said += world.client.take()
    answer: dict[str, Any] = json.loads(said.split(b"MSG r.9 ")[1].split(b"\r\n")[1])
    return answer


def code(answer: dict[str, Any]) -> int:
    return int(answer["error"]["err_code"])


@pytest.mark.feature("1.009", "1.010")
def test_a_request_without_a_reply_is_executed_and_answered_to_nobody() -> None:
    world = EngineWorld()
    body = b'{"name":"S","storage":"memory"}'
    said = world.client.say(b"PUB $JS.API.STREAM.CREATE.S %d\r\n%b\r\n" % (len(body), body))
    world.run()
    assert world.stream("S")
    assert b"MSG" not in said + world.client.take()
    said = world.client.say(b"PUB $JS.API.STREAM.INFO.S r.1 0\r\n\r\n")
    world.run()
    assert (said + world.client.take()).count(b"MSG r.1 ") == 1


@pytest.mark.feature("1.004", "1.005")
def test_who_asks_a_stream_or_consumer_that_is_not_there() -> None:
    world = EngineWorld()
    for subject in (b"CONSUMER.MSG.NEXT.S.C", b"DIRECT.GET.S", b"DIRECT.GET.S.x"):
        said = world.client.say(b"PUB $JS.API.%b r.1 0\r\n\r\n" % subject)
        world.run()
        assert b"503" in said + world.client.take(), subject
    said = world.client.say(b"PUB $JS.API.CONSUMER.RESET.S.C r.1 0\r\n\r\n")
    world.run()
    assert b"r.1" not in said + world.client.take()


@pytest.mark.feature("1.013", "1.044")
def test_unknown_fields_and_templates() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_direct=True)
    world.publish("s.a", b"hello")
    assert code(world.ask("STREAM.INFO.S", {"nonsense": 1})) == 10025
    refused = world.ask("STREAM.CREATE.T", {"name": "T", "template_owner": "x"})
    assert refused["error"]["description"] == 'invalid JSON: json: unknown field "template_owner"'
    ask = b'{"seq":1,"nonsense":true}'
    said = world.client.say(b"PUB $JS.API.DIRECT.GET.S r.1 %d\r\n%b\r\n" % (len(ask), ask))
    world.run()
    assert b"hello" in said + world.client.take()


@pytest.mark.feature("1.002")
def test_numbers_times_and_bytes_in_answers() -> None:
    world = EngineWorld()
    last = 2**64 - 2
    world.create("S", subjects=["s.>"], max_age=HOUR_NS, first_seq=last)
    published(world, "s.a", b"\x00\xff", "A:b")
    info = world.info("S")
    assert info["config"]["max_age"] == HOUR_NS
    assert info["state"]["last_seq"] == last
    assert info["created"].endswith("Z")
    message = world.ask("STREAM.MSG.GET.S", {"seq": last})["message"]
    assert (message["data"], message["seq"]) == ("AP8=", last)
    assert message["hdrs"]


@pytest.mark.feature("2.005")
@pytest.mark.parametrize(
    ("subject", "needs_no_ack"),
    [
        (">", True),
        ("$JS.>", True),
        ("$JS.API.x", True),
        ("$JSC.>", True),
        ("$NRG.x", True),
        ("$SYS.>", True),
        ("$JS.EVENT.>", False),
        ("$SYS.ACCOUNT.>", False),
    ],
)
def test_streams_on_the_servers_own_subjects_may_not_ack(subject: str, needs_no_ack: bool) -> None:
    world = EngineWorld()
    config = {"name": "S", "storage": "memory", "subjects": [subject]}
    answer = world.ask("STREAM.CREATE.S", config)
    assert ("error" in answer) is needs_no_ack
    if needs_no_ack:
        assert code(answer) == 10052
        assert world.ask("STREAM.CREATE.S", config | {"no_ack": True})["did_create"]


@pytest.mark.feature("2.013", "2.014", "3.003", "3.009")
def test_sizes_acks_and_subscribers_beside_the_stream() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], max_msg_size=30)
    world.create("Q", subjects=["q.>"], no_ack=True)
    assert published(world, "s.a", b"x" * 8, "A:b")["seq"] == 1
    assert code(published(world, "s.a", b"x" * 20, "A:b")) == 10054
    other = world.world.client(b'CONNECT {"verbose":false}\r\n')
    other.say(b"SUB s.> 1\r\nSUB q.> 2\r\n")
    said = world.client.say(b"PUB q.a r.1 1\r\nx\r\nPUB s.b r.2 1\r\ny\r\n")
    world.run()
    said += world.client.take()
    assert b"r.1" not in said
    assert b'{"stream":"S","seq":2}' in said
    assert [m.payload for m in world.messages("Q")] == [b"x"]
    heard = other.take()
    assert b"MSG q.a 2 r.1 1\r\nx" in heard
    assert b"MSG s.b 1 r.2 1\r\ny" in heard


@pytest.mark.feature("2.024", "2.044")
def test_times_to_live_are_enabled_and_never_disabled() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"])
    assert code(published(world, "s.a", b"x", "Nats-TTL: 5")) == 10166
    world.update("S", subjects=["s.>"], allow_msg_ttl=True)
    assert published(world, "s.a", b"x", "Nats-TTL: 5")["seq"] == 1
    refused = world.ask("STREAM.UPDATE.S", {"name": "S", "storage": "memory", "subjects": ["s.>"]})
    assert code(refused) == 10052


@pytest.mark.feature("3.019")
def test_never_outlives_the_age_of_the_stream_and_a_time_to_live_does_not() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_msg_ttl=True, max_age=10 * SECOND_NS)
    published(world, "s.never", b"x", "Nats-TTL: never")
    published(world, "s.long", b"x", "Nats-TTL: 1h")
    published(world, "s.short", b"x", "Nats-TTL: 2")
    published(world, "s.plain", b"x", "A:b")
    world.pass_time(4)
    assert [m.subject for m in world.messages("S")] == ["s.never", "s.long", "s.plain"]
    world.pass_time(10)
    assert [m.subject for m in world.messages("S")] == ["s.never"]


@pytest.mark.feature("3.021", "2.025")
def test_the_last_message_of_a_subject_leaves_a_marker_when_it_ages() -> None:
    world = EngineWorld()
    world.create(
        "S", subjects=["s.>"], max_age=5 * SECOND_NS, subject_delete_marker_ttl=20 * SECOND_NS
    )
    world.publish("s.a")
    world.publish("s.a")
    published(world, "s.gone", b"", "KV-Operation: PURGE")
    world.pass_time(7)
    (marker,) = world.messages("S")
    assert (marker.subject, marker.payload) == ("s.a", b"")
    for field in (b"Nats-Marker-Reason: MaxAge", b"Nats-TTL: 20s", b"Nats-Rollup: sub"):
        assert field in marker.headers
    world.pass_time(25)
    assert world.messages("S") == []


@pytest.mark.feature("2.027", "2.028", "2.029")
def test_batches_and_schedules_are_switched() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_atomic=True)
    base = {"name": "S", "storage": "memory", "subjects": ["s.>"]}
    for field in ("allow_atomic", "allow_batched"):
        for value in (True, False, True):
            assert "error" not in world.ask("STREAM.UPDATE.S", base | {field: value})
    assert "error" not in world.ask("STREAM.UPDATE.S", base | {"allow_msg_schedules": True})
    assert world.info("S")["config"]["allow_rollup_hdrs"] is True
    assert code(world.ask("STREAM.UPDATE.S", base)) == 10052
    mirror = {"name": "M", "storage": "memory", "mirror": {"name": "S"}}
    for field, expected in (
        ("allow_atomic", 10198),
        ("allow_batched", 10209),
        ("allow_msg_schedules", 10186),
    ):
        assert code(world.ask("STREAM.CREATE.M", mirror | {field: True})) == expected
    sourced = {"name": "M", "storage": "memory", "sources": [{"name": "S"}]}
    assert code(world.ask("STREAM.CREATE.M", sourced | {"allow_msg_schedules": True})) == 10187
    asked = base | {"name": "N", "subjects": ["n"], "discard": "new", "allow_msg_schedules": True}
    assert code(world.ask("STREAM.CREATE.N", asked)) == 10052


@pytest.mark.feature("2.038", "2.042")
def test_an_origin_may_be_named_twice_and_need_not_exist() -> None:
    world = EngineWorld()
    sources = [{"name": "NONE", "filter_subject": f"n.{part}"} for part in "ab"]
    world.create("S", sources=sources)
    world.create("M", mirror={"name": "LATER"})
    world.create("LATER", subjects=["later"])
    world.publish("later", b"first")
    world.pass_time(30)
    assert [m.payload for m in world.messages("M")] == [b"first"]


@pytest.mark.feature("1.094")
def test_a_batch_that_goes_silent_is_given_up_and_told_of() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_atomic=True)
    world.client.say(b"SUB $JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S 5\r\n")
    world.publish("s.a", b"x", "Nats-Batch-Id: b", "Nats-Batch-Sequence: 1")
    world.pass_time(11)
    told = world.seen + world.client.take()
    event = json.loads(told.split(b"BATCH_ABANDONED.S 5 ")[1].split(b"\r\n")[1])
    assert event["type"] == "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
    assert (event["stream"], event["batch"], event["reason"]) == ("S", "b", "timeout")
    assert world.messages("S") == []


@pytest.mark.feature("3.041", "3.040")
def test_fifty_open_batches_of_a_stream_and_no_more() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_atomic=True)
    for number in range(50):
        world.publish("s.a", b"x", f"Nats-Batch-Id: b{number}", "Nats-Batch-Sequence: 1")
    answer = published(world, "s.a", b"x", "Nats-Batch-Id: more", "Nats-Batch-Sequence: 1")
    assert (code(answer), answer["error"]["code"]) == (10210, 429)
    world.pass_time(11)
    world.publish("s.a", b"x", "Nats-Batch-Id: more", "Nats-Batch-Sequence: 1")
    answer = published(
        world, "s.a", b"y", "Nats-Batch-Id: more", "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1"
    )
    assert (answer["batch"], answer["count"], answer["seq"]) == ("more", 2, 2)


@pytest.mark.feature("3.043")
def test_a_batch_is_read_whole_or_not_at_all() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_atomic=True)
    world.publish("s.a", b"x", "Nats-Batch-Id: b", "Nats-Batch-Sequence: 1")
    assert code(world.ask("STREAM.MSG.GET.S", {"last_by_subj": "s.a"})) == 10037
    published(
        world, "s.a", b"y", "Nats-Batch-Id: b", "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1"
    )
    first, second = world.messages("S")
    assert (first.payload, second.payload) == (b"x", b"y")
    assert b"Nats-Batch-Id: b" in first.headers
    assert b"Nats-Batch-Sequence: 2" in second.headers


@pytest.mark.feature("3.050")
def test_a_fast_batch_whose_first_message_fails_gets_an_ordinary_refusal() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_batched=True)
    said = world.client.say(
        b"SUB f.> 4\r\nHPUB s.a f.id.10.fail.1.0.$FI 44 45\r\n"
        b"NATS/1.0\r\nNats-Expected-Last-Sequence: 7\r\n\r\nx\r\n"
    )
    world.run()
    said += world.client.take()
    body = json.loads(said.split(b"MSG f.id.10.fail.1.0.$FI 4 ")[-1].split(b"\r\n")[1])
    assert code(body) == 10071
    assert body["stream"] == "S"


@pytest.mark.feature("9.010")
def test_a_disk_that_takes_nothing_more_is_told_in_the_system_account() -> None:
    world = EngineWorld()
    told: list[bytes] = []
    world.engine.broker.system_account.subscribe(
        "$JS.EVENT.ADVISORY.SERVER.>",
        lambda subject, reply, headers, body, pattern: told.append(body),
    )
    world.engine.advisories.out_of_storage("ID")
    world.run()
    event = json.loads(told[0])
    assert event["type"] == "io.nats.jetstream.advisory.v1.server_out_of_space"
    assert (event["server"], event["server_id"]) == ("test", "ID")


def limited(**limits: Any) -> EngineWorld:
    """One account with limits of its own."""
    world = EngineWorld()
    owner = world.engine.accounts["$G"]
    owner.limits = replace(owner.limits, **limits)
    return world


@pytest.mark.feature("9.005", "1.026", "1.027")
def test_an_account_has_a_number_of_streams_and_demands_of_their_bytes() -> None:
    world = limited(max_streams=1, store_max_stream_bytes=500, memory_max_stream_bytes=500)
    config = {"name": "S", "storage": "memory", "max_bytes": 501}
    assert code(world.ask("STREAM.CREATE.S", config)) == 10122
    world.create("S", max_bytes=500)
    assert code(world.ask("STREAM.CREATE.T", {"name": "T", "storage": "memory"})) == 10027
    shown = world.ask("INFO")
    assert "tiers" not in shown
    assert (shown["limits"]["max_streams"], shown["streams"]) == (1, 1)
    world = limited(max_bytes_required=True)
    assert code(world.ask("STREAM.CREATE.S", {"name": "S", "storage": "memory"})) == 10113


@pytest.mark.feature("9.006", "2.050")
def test_what_streams_may_take_is_reserved_and_given_back() -> None:
    world = limited(max_memory_bytes=1000)
    world.create("S", max_bytes=600)
    config = {"name": "T", "storage": "memory", "max_bytes": 500}
    assert code(world.ask("STREAM.CREATE.T", config)) == 10028
    assert world.ask("INFO")["reserved_memory"] == 600
    world.update("S", max_bytes=400)
    assert world.ask("INFO")["reserved_memory"] == 400
    world.create("T", max_bytes=500)
    assert code(world.ask("STREAM.UPDATE.T", config | {"max_bytes": 700})) == 10028
    assert world.ask("INFO")["reserved_memory"] == 900
    world.ask("STREAM.DELETE.S")
    assert world.ask("INFO")["reserved_memory"] == 500
    world.update("T", max_bytes=1000)


@pytest.mark.feature("9.007")
def test_a_publish_beyond_what_the_account_may_take_is_refused() -> None:
    world = limited(max_memory_bytes=300)
    world.create("S", subjects=["s.>"])
    answers = [published(world, "s.a", b"x" * 100, "A:b") for _ in range(4)]
    assert answers[0]["seq"] == 1
    assert code(answers[-1]) == 10002
    world.ask("STREAM.PURGE.S")
    assert "error" not in published(world, "s.a", b"x", "A:b")


@pytest.mark.feature("3.034", "3.035", "3.036")
def test_a_schedule_fires_into_its_target_and_is_gone() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_msg_schedules=True, allow_msg_ttl=True)
    fields = (
        "Nats-Schedule-Target: s.out",
        "Nats-Schedule-TTL: 1h",
        "Nats-Msg-Id: once",
        "Own: kept",
    )
    published(world, "s.plan", b"late", "Nats-Schedule: @at 1970-01-01T00:00:00Z", *fields)
    world.pass_time(1)
    (fired,) = world.messages("S")
    assert (fired.subject, fired.payload) == ("s.out", b"late")
    for field in (b"Nats-Scheduler: s.plan", b"Nats-Schedule-Next: purge", b"Nats-TTL: 1h"):
        assert field in fired.headers
    assert b"Own: kept" in fired.headers
    for field in (b"Nats-Schedule-Target", b"Nats-Msg-Id", b"Nats-Schedule-TTL", b"Nats-Schedule:"):
        assert field not in fired.headers


@pytest.mark.feature("3.034", "3.036")
def test_a_repeated_schedule_is_replaced_and_cancelled() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_msg_schedules=True)
    target = "Nats-Schedule-Target: s.out"
    published(world, "s.plan", b"first", "Nats-Schedule: @every 1s", target)
    published(world, "s.plan", b"second", "Nats-Schedule: @every 1s", target)
    world.pass_time(3.5)
    subjects = [message.subject for message in world.messages("S")]
    assert subjects.count("s.plan") == 1
    fired = [m for m in world.messages("S") if m.subject == "s.out"]
    assert [m.payload for m in fired] == [b"second"] * len(fired)
    assert 2 <= len(fired) <= 4
    world.ask("STREAM.PURGE.S", {"filter": "s.plan"})
    world.pass_time(3)
    assert len([m for m in world.messages("S") if m.subject == "s.out"]) == len(fired)


@pytest.mark.feature("3.049", "3.046")
def test_a_silent_fast_batch_is_dropped_without_a_word_and_duplicates_are_passed_over() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"], allow_batched=True)
    world.client.say(b"SUB f.> 4\r\nPUB s.a f.id.10.ok.1.0.$FI 1\r\nx\r\n")
    world.run()
    world.client.take()
    world.pass_time(12)
    assert b"f.id" not in world.client.take()
    said = world.client.say(b"PUB s.a f.id.10.ok.2.1.$FI 1\r\ny\r\n")
    world.run()
    assert b'"err_code":10208' in said + world.client.take()
    block = b"NATS/1.0\r\nNats-Msg-Id: same\r\n\r\n"
    for number, operation in ((1, 0), (2, 1), (3, 2)):
        reply = b"f.two.10.ok.%d.%d.$FI" % (number, operation)
        sizes = b"%d %d" % (len(block), len(block) + 1)
        world.client.say(b"HPUB s.b %b %b\r\n%bx\r\n" % (reply, sizes, block))
    world.run()
    assert len([m for m in world.messages("S") if m.subject == "s.b"]) == 1
