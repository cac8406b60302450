"""Consumers of a real process: kept over a restart, removed when nobody uses them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess

MS = 1_000_000
DEADLINE_S = 30.0


def ask(client: Client, subject: str, body: Any = None) -> Any:
    payload = b"" if body is None else json.dumps(body).encode()
    return json.loads(client.request(f"$JS.API.{subject}", payload))


def make(client: Client, name: str, stream: str = "S", **config: Any) -> Any:
    body = {"stream_name": stream, "config": config}
    return ask(client, f"CONSUMER.CREATE.{stream}.{name}", body)


def names(client: Client, stream: str = "S") -> list[str]:
    found: list[str] = ask(client, f"CONSUMER.NAMES.{stream}")["consumers"]
    return found


def until_gone(client: Client, name: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while name in names(client):
        assert time.monotonic() < deadline, f"{name} is still there"
        time.sleep(0.02)


def test_configurations_outlive_the_process(tmp_path: Path) -> None:
    flags = ("-js", "-sd", str(tmp_path))
    with ServerProcess(tmp_path, *flags, command=MARTLET) as server:
        client = Client(server.port)
        for stream in ("S", "T"):
            ask(client, f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [stream]})
        one = make(client, "C", durable_name="C", ack_policy="explicit", description="first")
        make(client, "C", durable_name="C", ack_policy="explicit", description="second")
        make(client, "gone", durable_name="gone")
        make(client, "memory", durable_name="memory", mem_storage=True)
        make(client, "C", "T", durable_name="C")
        ask(client, "CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"})
        ask(client, "CONSUMER.DELETE.S.gone")
        ask(client, "STREAM.DELETE.T")
        client.close()
    with ServerProcess(tmp_path, *flags, command=MARTLET) as server:
        client = Client(server.port)
        assert names(client) == ["C"]
        found = ask(client, "CONSUMER.INFO.S.C")
        assert found["created"] == one["created"]
        assert found["config"]["description"] == "second"
        assert found["paused"]
        assert ask(client, "STREAM.INFO.S")["state"]["consumer_count"] == 1
        ask(client, "STREAM.CREATE.T", {"name": "T", "subjects": ["T"]})
        assert names(client, "T") == []
        client.close()


@pytest.mark.feature("5.003")
def test_unused_consumers_go(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        client = Client(server.port)
        ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["S"]})
        client.subscribe("heard", 5)
        quick = 50 * MS
        make(client, "stays", durable_name="stays")
        make(client, "pull", inactive_threshold=quick)
        make(client, "durable", durable_name="durable", inactive_threshold=quick)
        make(client, "push", deliver_subject="unheard", inactive_threshold=quick)
        make(client, "listened", deliver_subject="heard", inactive_threshold=quick)
        for name in ("pull", "durable", "push"):
            until_gone(client, name)
        assert names(client) == ["listened", "stays"]
        client.unsubscribe(5)
        until_gone(client, "listened")
        assert names(client) == ["stays"]
        client.close()
