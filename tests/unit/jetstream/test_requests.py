"""API requests: in which order they are answered, what a full queue does, who asked, paging."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from tests.unit.jetstream.engine_world import EngineWorld


def request(subject: str, reply: str, body: str = "") -> bytes:
    return f"PUB $JS.API.{subject} r.{reply} {len(body)}\r\n{body}\r\n".encode()


@pytest.mark.feature("1.022")
def test_what_changes_something_comes_before_what_only_asks() -> None:
    world = EngineWorld()
    made = '{"name":"S","storage":"memory"}'
    together = request("STREAM.INFO.S", "info") + request("STREAM.CREATE.S", "made", made)
    said = world.client.say(together)
    world.run()
    said += world.client.take()
    assert said.index(b"MSG r.made") < said.index(b"MSG r.info")
    assert b"did_create" in said
    assert b'"error"' not in said


@pytest.mark.feature("1.022", "1.081")
def test_a_full_queue_is_dropped_and_the_system_account_told() -> None:
    world = EngineWorld()
    engine = world.engine
    engine.options = replace(engine.options, request_queue_limit=3, info_queue_limit=5)
    told: list[bytes] = []
    engine.broker.system_account.subscribe(
        "$JS.EVENT.ADVISORY.API.LIMIT_REACHED",
        lambda subject, reply, headers, body, pattern: told.append(body),
    )
    made = '{"name":"S%d","storage":"memory"}'
    world.client.say(b"".join(request(f"STREAM.CREATE.S{n}", "x", made % n) for n in range(4)))
    world.run()
    # The third filled the queue: it and those before it are gone, the fourth is served.
    assert sorted(world.engine.accounts["$G"].streams) == ["S3"]
    world.client.say(b"".join(request("INFO", "x") for _ in range(4)))
    world.run()
    event = json.loads(told[0])
    assert event["type"] == "io.nats.jetstream.advisory.v1.api_limit_reached"
    assert (event["server"], event["dropped"]) == ("test", 3)
    assert len(told) == 1
    assert any("dropping 3 requests" in text for text in world.warnings)


@pytest.mark.feature("1.023")
def test_requests_are_counted_and_errors_too() -> None:
    world = EngineWorld()
    world.ask("STREAM.CREATE.S", {"name": "S", "storage": "memory"})
    world.ask("STREAM.INFO.NONE")
    world.ask("STREAM.MSG.GET.S", {"seq": 1})
    counted = world.ask("INFO")["api"]
    assert (counted["total"], counted["errors"]) == (3, 2)
    assert world.engine.api.inflight == 0


@pytest.mark.feature("1.003", "1.079", "1.080")
def test_an_audit_tells_who_asked_what_and_what_was_answered() -> None:
    world = EngineWorld()
    world.client.say(b"SUB $JS.EVENT.ADVISORY.API 7\r\n")
    answer = world.ask("STREAM.INFO.NONE", {"deleted_details": True})
    world.run()
    text = (world.seen + world.client.take()).split(b"MSG $JS.EVENT.ADVISORY.API 7 ")[1]
    event = json.loads(text.split(b"\r\n")[1])
    assert event["type"] == "io.nats.jetstream.advisory.v1.api_audit"
    assert event["subject"] == "$JS.API.STREAM.INFO.NONE"
    assert json.loads(event["request"]) == {"deleted_details": True}
    assert json.loads(event["response"]) == answer
    who = event["client"]
    assert (who["acc"], who["host"], who["kind"], who["server"]) == (
        "$G",
        "127.0.0.1",
        "Client",
        "test",
    )
    assert who["id"] == 1


@pytest.mark.feature("1.019", "1.021")
def test_lists_come_in_pages_sorted_by_name() -> None:
    world = EngineWorld()
    assert world.ask("STREAM.NAMES")["streams"] is None
    assert world.ask("STREAM.LIST")["streams"] == []
    for number in range(300):
        world.create(f"S{number:03}", subjects=[f"s.{number}"])
    page = world.ask("STREAM.LIST", {"offset": 250})
    assert (page["total"], page["offset"], page["limit"]) == (300, 250, 256)
    assert [each["config"]["name"] for each in page["streams"]] == [
        f"S{n}" for n in range(250, 300)
    ]
    page = world.ask("STREAM.LIST", {"offset": -7})
    assert (len(page["streams"]), page["offset"]) == (256, 0)
    page = world.ask("STREAM.NAMES", {"offset": 999})
    assert (page["streams"], page["offset"]) == (None, 300)
    assert world.ask("STREAM.NAMES", {"subject": "s.7"})["streams"] == ["S007"]
    assert len(world.ask("STREAM.NAMES", {"subject": "s.*"})["streams"]) == 300
