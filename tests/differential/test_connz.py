"""The same connections to both servers, then the same questions to /connz, made from a seed.

Connections of all shapes: users of two accounts, an nkey, nobody, and one for each way to be
refused or closed. What is compared: every key and plain value of every entry, which entries are
there, and the order wherever the sorted values differ.
"""

from __future__ import annotations

import base64
import json
import random
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode

import nacl.signing
import pytest

from server.auth.nkeys import Kind, encode_public
from tests.e2e.server import MARTLET, NATS_SERVER, RawClient, ServerProcess, wait_for

pytestmark = pytest.mark.peer

NKEY = nacl.signing.SigningKey(bytes(range(32)))
NKEY_USER = encode_public(Kind.USER, bytes(NKEY.verify_key))
CONFIG = f"""
http: "127.0.0.1:-1"
max_payload: 2000
max_control_line: 600
authorization {{ timeout: 60 }}
accounts {{
  A {{ users: [ {{user: a, password: a}}, {{nkey: {NKEY_USER}}} ] }}
  B {{ users: [ {{user: b, password: b, permissions: {{subscribe: {{deny: "no"}}}}}} ] }}
  SYS {{ users: [ {{user: s, password: s}} ] }}
}}
system_account: SYS
no_auth_user: a
"""
# Those that stay, with what they say after CONNECT.
LIVING: dict[str, tuple[dict[str, Any], str]] = {
    "nobody": ({}, "SUB foo 1\r\n"),
    "a": (
        {"user": "a", "pass": "a", "name": 'n "ä"', "lang": "go", "version": "1.2"},
        "SUB a.* q 1\r\nSUB a.> 2\r\nUNSUB 2 5\r\nPUB a.b 3\r\nabc\r\n",
    ),
    "b": ({"user": "b", "pass": "b", "name": "b"}, "SUB > 1\r\nSUB no 5\r\nPUB y 1\r\ny\r\n"),
    "nkey": ({"nkey": NKEY_USER}, ""),
    "left": ({"user": "a", "pass": "a", "name": "l"}, "SUB z 1\r\nSUB zz q 2\r\nUNSUB 2 3\r\n"),
    "nkey_left": ({"nkey": NKEY_USER}, ""),
}
# Those that the server closes.
CLOSED: dict[str, tuple[dict[str, Any], str]] = {
    "password": ({"user": "a", "pass": "x", "name": "p", "lang": "l", "version": "v"}, ""),
    "user": ({"user": "zz", "pass": "x"}, ""),
    "token": ({"auth_token": "zz"}, ""),
    "signature": ({"nkey": NKEY_USER, "sig": "AAAA"}, ""),
    "account": ({"account": "A"}, ""),
    "protocol": ({"protocol": 9}, ""),
    "responders": ({"no_responders": True, "headers": False}, ""),
    "verb": ({}, "SUB ok 1\r\nNONSENSE\r\n"),
    "arguments": ({}, "PUB a b c d e\r\n"),
    "payload": ({}, "PUB a 99999\r\n"),
    "line": ({}, "PUB " + 700 * "a"),
    "headers": ({"headers": False}, "HPUB a 0 0\r\n\r\n"),
    "error": ({}, "-ERR 'bye'\r\n"),
}
TIMES = {"start", "last_activity", "stop", "rtt", "uptime", "idle"}
MASKED = TIMES | {"server_id", "now", "port", "pending_bytes"}
# On the way of a fault the reference forgets what it counted in the same read.
FORGOTTEN = {"in_msgs", "in_bytes"}
SORTED_BY = {
    "cid": "cid",
    "start": "cid",
    "subs": "subscriptions",
    "msgs_to": "out_msgs",
    "bytes_to": "out_bytes",
    "reason": "reason",
}
ARGUMENTS = {
    "sort": [*SORTED_BY, "pending", "last", "idle", "uptime", "rtt", "stop", "bad", "CID", ""],
    "state": ["open", "closed", "any", "all", "ALL", "x", ""],
    "limit": ["0", "1", "3", "100", "-1", "x", "99999999999999999999", "1.0"],
    "offset": ["0", "2", "1000", "-1", "x"],
    "auth": ["1", "0", "true", "T", "TRUE", "yes"],
    "subs": ["1", "0", "true", "detail", "DETAIL", "x"],
    "cid": ["0", "-1", "x", "77777"],
    "user": ["a", "b", "zz", "none", NKEY_USER],
    "acc": ["A", "B", "SYS", "none"],
    "mqtt_client": ["x"],
    "filter_subject": ["a.b", ">", "foo"],
}
OFTEN = {"sort": 0.6, "state": 0.8, "auth": 0.6, "subs": 0.6}
QUESTIONS = 300


class Scene:
    """One server with its connections; names are what both servers' cids stand for."""

    def __init__(self, stack: ExitStack, server: ServerProcess) -> None:
        self.server = server
        self.names: dict[int, str] = {}
        for name, (connect, said) in LIVING.items():
            client = self.dial(stack, name, connect)
            read_pong(client)
            client.send(said + "PING\r\n")
            read_pong(client)
            if name.endswith("left"):
                client.socket.close()
                wait_for(lambda: self.closed_count() == self.gone(), "the end of one that left")
        for name, (connect, said) in CLOSED.items():
            client = self.dial(stack, name, connect)
            client.send(said)
            wait_for(lambda: self.closed_count() == self.gone(), f"the close for {name}")

    def gone(self) -> int:
        return sum(name in CLOSED or name.endswith("left") for name in self.names.values())

    def dial(self, stack: ExitStack, name: str, connect: dict[str, Any]) -> RawClient:
        client = stack.enter_context(self.server.connect())
        info = client.info()
        self.names[info["client_id"]] = name
        if "nkey" in name:
            signature = NKEY.sign(info["nonce"].encode()).signature
            connect = connect | {"sig": base64.urlsafe_b64encode(signature).decode().rstrip("=")}
        client.connect_with(**connect)
        return client

    def closed_count(self) -> int:
        total: int = self.ask({"state": "closed"})[2]["total"]
        return total

    def ask(self, query: dict[str, str]) -> tuple[int, str, Any]:
        url = f"http://127.0.0.1:{self.server.http_port}/connz?{urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return answer.status, answer.headers["Content-Type"], json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def masked(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            faulty = value.get("reason", "Client Closed") != "Client Closed"
            left_out = MASKED | (FORGOTTEN if faulty else set())
            return {k: self.masked(v, k) for k, v in value.items() if k not in left_out}
        if isinstance(value, list):
            # Subscriptions of one client come in no particular order.
            items = [self.masked(each) for each in value]
            return sorted(items, key=str) if key.startswith("subscriptions_list") else items
        return self.names.get(value, value) if key == "cid" else value


def read_pong(client: RawClient) -> None:
    """Past messages and their payloads, up to the answer to PING."""
    line = ""
    while line != "PONG":
        line = client.line()
        assert line, "the server closed"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Scene]]:
    with ExitStack() as stack:
        made = []
        for name, command in (("genuine", NATS_SERVER), ("ours", MARTLET)):
            home = tmp_path_factory.mktemp(name)
            server = ServerProcess(home, config=CONFIG, command=command)
            made.append(Scene(stack, stack.enter_context(server)))
        yield made


def question(chance: random.Random) -> dict[str, str]:
    chosen = [name for name in ARGUMENTS if chance.random() < OFTEN.get(name, 0.12)]
    chance.shuffle(chosen)
    return {name: chance.choice(ARGUMENTS[name]) for name in chosen}


def is_partial(query: dict[str, str]) -> bool:
    """Which of equals are shown is chance."""
    return bool({"limit", "offset"} & set(query))


def difference(genuine: Any, ours: Any, query: dict[str, str]) -> str:
    if genuine[:2] != ours[:2] or not isinstance(genuine[2], dict):
        return "" if genuine == ours else f"{genuine} / {ours}"
    lists = [page.pop("connections") or [] for page in (genuine[2], ours[2])]
    if genuine[2] != ours[2]:
        return f"{genuine[2]} / {ours[2]}"
    key = SORTED_BY.get(query.get("sort") or "cid")
    if key is not None:
        theirs, mine = ([entry.get(key) for entry in entries] for entries in lists)
        if theirs != mine:
            return f"order: {theirs} / {mine}"
    by_name = [{entry["cid"]: entry for entry in entries} for entries in lists]
    if not is_partial(query) and by_name[0].keys() != by_name[1].keys():
        return f"{sorted(by_name[0])} / {sorted(by_name[1])}"
    for name in by_name[0].keys() & by_name[1].keys():
        if by_name[0][name] != by_name[1][name]:
            return f"{name}: {by_name[0][name]} / {by_name[1][name]}"
        if list(by_name[0][name]) != list(by_name[1][name]):
            return f"order of keys: {list(by_name[0][name])} / {list(by_name[1][name])}"
    return ""


@pytest.mark.feature("5-004", "5-017", "5-018", "5-019", "5-020", "5-021", "5-022", "5-024")
def test_questions_get_the_same_answers(scenes: list[Scene]) -> None:
    chance = random.Random(5)
    wrong = []
    for _ in range(QUESTIONS):
        query = question(chance)
        answers = []
        for scene in scenes:
            status, kind, page = scene.ask(query)
            answers.append((status, kind, scene.masked(page)))
        found = difference(answers[0], answers[1], query)
        if found:
            wrong.append(f"{query}: {found}")
    assert not wrong, "\n".join(wrong)


def test_every_shape_was_seen(scenes: list[Scene]) -> None:
    for scene in scenes:
        page = scene.masked(scene.ask({"state": "all"})[2])
        assert {entry["cid"] for entry in page["connections"]} == LIVING.keys() | CLOSED.keys()
