"""What the log of a real process says when it comes back after kill -9."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess

CONFIG = 'listen: 127.0.0.1:-1\njetstream {{ store_dir: "{store}" }}\n'


def started(folder: Path) -> ServerProcess:
    return ServerProcess(folder, config=CONFIG.format(store=folder / "store"), command=MARTLET)


@pytest.mark.feature("9.031")
def test_each_stream_is_told_before_the_server_is_ready(tmp_path: Path) -> None:
    with started(tmp_path) as server, closing(Client(server.port)) as client:
        for name in ("ORDERS", "EMPTY"):
            config = {"name": name, "subjects": [name], "storage": "file"}
            client.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode())
        for _ in range(3):
            client.request("ORDERS", b"hello")
        server.signal(signal.SIGKILL)
        server.wait_exit()
    with started(tmp_path) as server:
        server.wait_log("Server is ready")
        lines = server.log()
        ready = next(number for number, line in enumerate(lines) if "Server is ready" in line)
        for text in (
            "  Restored 3 messages for stream '$G > ORDERS' in ",
            "0 messages for stream '$G > EMPTY'",
        ):
            told = [number for number, line in enumerate(lines) if text in line]
            assert len(told) == 1
            assert told[0] < ready
        assert not any("WRN" in line for line in lines)


def test_damage_is_told(tmp_path: Path) -> None:
    with started(tmp_path) as server, closing(Client(server.port)) as client:
        config = {"name": "ORDERS", "subjects": ["ORDERS"], "storage": "file"}
        client.request("$JS.API.STREAM.CREATE.ORDERS", json.dumps(config).encode())
        client.request("ORDERS", b"hello")
        server.signal(signal.SIGTERM)
        server.wait_exit()
    for state in (tmp_path / "store").rglob("state.?"):
        state.write_bytes(b"no")
    with started(tmp_path) as server:
        server.wait_log("WRN.*state.a: does not hold")
        server.wait_log("Restored 1 messages")
