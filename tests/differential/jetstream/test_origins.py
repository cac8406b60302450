"""Streams that copy from others, at the genuine server and at Martlet: equal answers, equal copies.

Times, identities and what the reference counts of its own requests are masked.
"""

from __future__ import annotations

import difflib
import json
import re
import time
from base64 import b64decode
from typing import Any

import pytest

from tests.differential.jetstream import origin_cases
from tests.differential.jetstream.client import Client
from tests.differential.jetstream.origin_cases import (
    Ask,
    Case,
    Gone,
    Hear,
    Look,
    Make,
    Put,
    Told,
    Until,
)
from tests.differential.jetstream.play import API, clean, masked, parsed
from tests.e2e.server import wait_for

IDENTITY = re.compile(rb"(Nats-Stream-Source: \S+ \d+ .* \S+) [0-9A-Za-z]{8}\r\n")
DELIVER = re.compile(r"^(\$JS\.[MS]\.)[0-9A-Za-z]{8}$")
TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
WAIT_S = 30.0
Pair = tuple[Client, Client]
pytestmark = pytest.mark.peer


def without_chance(block: bytes) -> bytes:
    return IDENTITY.sub(rb"\1 <identity>\r\n", TIME.sub(b"<time>", block))


def settled(value: Any) -> Any:
    """An origin's `active` is a time since; it must have been heard of."""
    if isinstance(value, str):
        return DELIVER.sub(r"\1<generated>", value)
    if isinstance(value, dict):
        shown = {key: settled(item) for key, item in value.items()}
        if "lag" in shown and "active" in shown:
            shown["active"] = "<never>" if shown["active"] < 0 else "<active>"
        return shown
    if not isinstance(value, list):
        return value
    items = [settled(item) for item in value]
    told_by_chance = all(isinstance(item, dict) and "lag" in item for item in items)
    return sorted(items, key=lines) if told_by_chance else items


def told(client: Client, step: Any) -> Any:
    match step:
        case Make():
            verb = "UPDATE" if step.update else "CREATE"
            body = json.dumps({"name": step.name, **step.config}).encode()
            answer = parsed(client.request(f"{API}STREAM.{verb}.{step.name}", body))
            # How far a running source is when it is changed is a matter of chance.
            for key in ("mirror", "sources", "state") if step.update else ():
                answer.pop(key, None)
            return settled(masked(answer, with_progress=True))
        case Put():
            block = "\r\n".join(["NATS/1.0", *step.fields, "", ""]).encode() if step.fields else b""
            return [
                parsed(client.request(step.subject, step.payload, block)) for _ in range(step.count)
            ]
        case Ask():
            body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
            answer = client.request(API + step.subject, body)
            return settled(masked(parsed(without_chance(answer))))
        case Until():
            return until(client, step)
        case Gone():
            wait_for(lambda: not info_of(client, step.name)["state"]["consumer_count"], "gone")
            return None
        case Told():
            wait_for(lambda: step.err_code in refusals(info_of(client, step.name)), "refused")
            return None
        case Look():
            return look(client, step)
        case Hear():
            client.subscribe(step.subject, 9)
            return None
    raise AssertionError(step)


def origins_of(info: Any) -> list[Any]:
    return [*info.get("sources", ()), *([info["mirror"]] if "mirror" in info else ())]


def refusals(info: Any) -> list[int]:
    return [each["error"]["err_code"] for each in origins_of(info) if "error" in each]


def info_of(client: Client, name: str) -> Any:
    return json.loads(client.request(f"{API}STREAM.INFO.{name}"))


def connected(info: Any) -> bool:
    return all(each["active"] >= 0 for each in origins_of(info))


def until(client: Client, step: Until) -> None:
    """Its origins were heard of, and all was copied."""
    deadline = time.monotonic() + WAIT_S
    while True:
        info = info_of(client, step.name)
        state = info["state"]
        if (
            connected(info)
            and state["last_seq"] >= step.last_seq
            and step.messages in (-1, state["messages"])
        ):
            return
        assert time.monotonic() < deadline, info
        time.sleep(0.01)


def look(client: Client, step: Look) -> Any:
    info = info_of(client, step.name)
    state, found = info["state"], []
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        body = json.dumps({"seq": seq}).encode()
        answer = json.loads(client.request(f"{API}STREAM.MSG.GET.{step.name}", body))
        message = answer.get("message")
        if message is not None:
            parts = [without_chance(b64decode(message.get(key, ""))) for key in ("hdrs", "data")]
            found.append((seq, message["subject"], *parts))
    return [settled(masked(info, with_progress=True)) if step.info else None, found]


def play(client: Client, case: Case) -> list[Any]:
    clean(client)
    answers = [told(client, step) for step in case.steps]
    heard = [
        (subject, without_chance(block), payload)
        for subject, block, payload in client.settled()
        if not subject.startswith("_R.")
    ]
    client.unsubscribe(9)
    clean(client)
    return [*answers, heard]


def compare(pair: Pair, case: Case) -> None:
    genuine, ours = (play(client, case) for client in pair)
    for at, (theirs, mine) in enumerate(zip(genuine, ours, strict=True)):
        assert mine == theirs, f"step {at}: {[*case.steps, 'heard'][at]}\n" + "\n".join(
            difflib.unified_diff(lines(theirs), lines(mine), "genuine", "ours", n=0)
        )


def lines(value: Any) -> list[str]:
    return json.dumps(value, indent=1, sort_keys=True, default=repr).splitlines()


def cases(group: str) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in origin_cases.GROUPS[group]()]


@pytest.mark.feature("7.007", "7.008", "7.017", "7.019", "7.023", "2.020", "2.035", "2.067")
@pytest.mark.parametrize("case", cases("mirrors"))
def test_mirrors(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature(
    "7.009", "7.010", "7.012", "7.013", "7.020", "2.067", "3.024", "3.028", "3.031"
)
@pytest.mark.parametrize("case", cases("sources"))
def test_sources(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("7.004", "7.006", "2.041", "7.013")
@pytest.mark.parametrize("case", cases("queues"))
def test_queues(pair: Pair, case: Case) -> None:
    compare(pair, case)
