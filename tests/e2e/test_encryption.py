"""A real process with `key`: nothing readable on the disk, rotation, a wrong key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess, wait_for

CONFIG = """
listen: 127.0.0.1:-1
http: 127.0.0.1:-1
jetstream {{ store_dir: "{store}", {extra} }}
"""


def started(folder: Path, extra: str) -> ServerProcess:
    store = folder / "store"
    config = CONFIG.format(store=store, extra=extra)
    return ServerProcess(folder, config=config, command=MARTLET)


def ask(client: Client, subject: str, body: Any = None) -> Any:
    payload = b"" if body is None else json.dumps(body).encode()
    return json.loads(client.request(f"$JS.API.{subject}", payload))


def everything(folder: Path) -> bytes:
    return b"".join(
        file.read_bytes() for file in sorted((folder / "store").rglob("*")) if file.is_file()
    )


def messages(client: Client, stream: str = "SECRETS") -> int:
    count: int = ask(client, f"STREAM.INFO.{stream}")["state"]["messages"]
    return count


@pytest.mark.feature("9.032", "9.033")
def test_a_key_and_its_rotation_and_a_wrong_one(tmp_path: Path) -> None:
    with started(tmp_path, "key: first") as server:
        server.wait_log("Encryption:      ChaCha20-Poly1305")
        client = Client(server.port)
        ask(
            client,
            "STREAM.CREATE.SECRETS",
            {"name": "SECRETS", "subjects": ["hidden.*"], "description": "hidden-description"},
        )
        ask(client, "STREAM.CREATE.M", {"name": "M", "subjects": ["hush"], "storage": "memory"})
        for number in range(50):
            client.request(f"hidden.{number % 5}", b"hidden-payload")
        config = {"durable_name": "C", "ack_policy": "explicit", "description": "hidden-consumer"}
        ask(client, "CONSUMER.CREATE.SECRETS.C", {"stream_name": "SECRETS", "config": config})
        client.close()
        for secret in (b"hidden", b"hush"):
            assert secret not in everything(tmp_path)
    with started(tmp_path, "key: second, prev_key: first, cipher: chacha") as server:
        client = Client(server.port)
        assert messages(client) == 50
        client.close()
    with started(tmp_path, "key: third") as server:
        server.wait_log("'.G > SECRETS' is encrypted and no configured key opens it")
        with pytest.raises(HTTPError, match="503") as unhealthy:
            urlopen(f"http://127.0.0.1:{server.http_port}/healthz")
        with unhealthy.value:
            assert b"'$G > SECRETS' could not be recovered" in unhealthy.value.read()
        client = Client(server.port)
        assert ask(client, "STREAM.INFO.SECRETS")["error"]["err_code"] == 10059
        again = ask(client, "STREAM.CREATE.SECRETS", {"name": "SECRETS", "subjects": ["hidden.*"]})
        assert "no configured key opens it" in again["error"]["description"]
        assert ask(client, "STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["o"]})["config"]
        client.close()
    with started(tmp_path, "key: second, prev_key: third") as server:
        client = Client(server.port)
        assert messages(client) == 50
        assert messages(client, "OTHER") == 0
        found = ask(client, "CONSUMER.INFO.SECRETS.C")
        assert found["config"]["description"] == "hidden-consumer"
        client.close()


@pytest.mark.feature("2.016")
@pytest.mark.parametrize("codec", ["zstd", "s2", "lz4"])
def test_a_stream_asks_for_compression(tmp_path: Path, codec: str) -> None:
    with started(tmp_path, f"block_compression: {codec}") as server:
        client = Client(server.port)
        body = {"name": "SECRETS", "subjects": ["s"], "compression": "s2"}
        assert ask(client, "STREAM.CREATE.SECRETS", body)["config"]["compression"] == "s2"
        for _ in range(400):
            client.request("s", b"repeat " * 300)
        client.close()
    blocks = sorted((tmp_path / "store").rglob("*.blk"))
    with started(tmp_path, f"block_compression: {codec}") as server:
        client = Client(server.port)
        wait_for(lambda: blocks[0].read_bytes()[10:11] == b"\1", "a compressed block")
        assert messages(client) == 400
        got = ask(client, "STREAM.MSG.GET.SECRETS", {"seq": 2})
        assert got["message"]["data"]
        client.close()
