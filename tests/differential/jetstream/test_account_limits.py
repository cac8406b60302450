"""Limits of accounts for single streams and consumers, and what a reload makes of limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.differential.jetstream.cases import create
from tests.differential.jetstream.client import Client
from tests.differential.jetstream.consumer_cases import durable
from tests.differential.jetstream.play import Ask, Publish, masked, parsed
from tests.differential.jetstream.test_settings import MB, compare, servers
from tests.e2e.server import ServerProcess

Pair = tuple[ServerProcess, ServerProcess]
CONFIG = """
jetstream { max_mem: 100MB, max_file: 100MB, STORE }
accounts {
  MANY {
    users [ { user: many, password: p } ]
    jetstream {
      max_mem: -1, max_file: 10MB, max_streams: -1, max_consumers: 2
      disk_max_stream_bytes: 4MB, max_ack_pending: 7
    }
  }
  NO_FILES { users [ { user: memory, password: p } ], jetstream { max_mem: 1MB, max_file: 0 } }
}
"""
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with servers(tmp_path_factory.mktemp("accounts"), CONFIG) as pair:
        yield pair


def in_file(name: str = "S", **more: Any) -> Ask:
    return create(name, storage="file", **more)


STEPS: dict[str, list[Ask]] = {
    "info": [Ask("INFO")],
    "size in a file": [in_file(max_bytes=4 * MB + 1), in_file(max_bytes=4 * MB), Ask("INFO")],
    "no size in a file": [in_file()],
    "any size in memory": [create(max_bytes=50 * MB), create("T")],
    "consumers": [create(), durable("A"), durable("B"), durable("C")],
    "pending": [create(), durable("A", ack_policy="explicit")],
    "less pending": [create(), durable("A", ack_policy="explicit", max_ack_pending=7)],
    "more pending": [create(), durable("A", ack_policy="explicit", max_ack_pending=8)],
    "any pending": [create(), durable("A", ack_policy="explicit", max_ack_pending=-1)],
}


@pytest.mark.feature("9.003")
@pytest.mark.parametrize("name", STEPS)
def test_limits_of_streams_and_consumers(accounts: Pair, name: str) -> None:
    compare(accounts, STEPS[name], "many")


@pytest.mark.feature("9.003")
def test_an_account_without_files(accounts: Pair) -> None:
    compare(accounts, [Ask("INFO"), in_file(max_bytes=1), create("T", max_bytes=1)], "memory")


RELOADED = """
jetstream { max_mem: %s, max_file: 100MB, STORE }
accounts { A { users [ { user: a, password: p } ], jetstream { %s } } }
"""


def answers(server: ServerProcess, *asks: Ask | Publish) -> list[Any]:
    client = Client(server.port, "a", "p")
    told = []
    for each in asks:
        if isinstance(each, Publish):
            told.append(masked(parsed(client.request(each.subject, each.payload))))
        else:
            body = json.dumps(each.body).encode() if each.body else b""
            told.append(masked(parsed(client.request("$JS.API." + each.subject, body))))
    client.close()
    return told


@pytest.mark.feature("9.011")
def test_a_reload_moves_limits_and_deletes_nothing(tmp_path: Path) -> None:
    before = RELOADED % ("10MB", "max_mem: 5MB, max_streams: 2")
    lower = RELOADED % ("20MB", "max_mem: 100, max_streams: 1")
    higher = RELOADED % ("20MB", "max_mem: 9MB, max_streams: 3")
    filled = [create(), *(Publish("S", b"x" * 1000) for _ in range(5)), create("T")]
    looks = [Ask("INFO"), Ask("STREAM.INFO.S"), Publish("S", b"y"), create("U"), Ask("INFO")]
    told: list[list[Any]] = []
    with servers(tmp_path, before) as pair:
        for server in pair:
            store = f'store_dir: "{server.directory}"'
            mine = answers(server, *filled)
            for text in (lower, higher):
                assert "Reloaded" in server.reload(text.replace("STORE", store))
                mine += answers(server, *looks)
            told.append(mine)
    genuine, ours = told
    for at, (theirs, mine) in enumerate(zip(genuine, ours, strict=True)):
        assert mine == theirs, at


@pytest.mark.feature("9.011")
@pytest.mark.parametrize(
    "change", [("max_mem: 10MB", "max_mem: 6MB"), ("STORE", 'store_dir: "/tmp/elsewhere"')]
)
def test_a_reload_that_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    text = RELOADED % ("10MB", "max_mem: 5MB")
    with servers(tmp_path, text) as pair:
        for server in pair:
            wanted = text.replace(*change)
            line = server.reload(wanted.replace("STORE", f'store_dir: "{server.directory}"'))
            assert "Failed" in line
            (info,) = answers(server, Ask("INFO"))
            assert info["limits"]["max_memory"] == 5 * MB
