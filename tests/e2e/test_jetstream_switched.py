"""JetStream is switched off and on by reloads: clients stay, and what was stored is back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess

NO_RESPONDERS = b"NATS/1.0 503"


def config(store: Path | None) -> str:
    jetstream = f'jetstream {{ store_dir: "{store}" }}' if store is not None else ""
    return f"listen: 127.0.0.1:-1\nhttp: 127.0.0.1:-1\n{jetstream}\n"


def ask(client: Client, subject: str, body: Any = None) -> Any:
    payload = b"" if body is None else json.dumps(body).encode()
    return json.loads(client.request(f"$JS.API.{subject}", payload))


def is_told(server: ServerProcess) -> bool:
    """Whether INFO tells of it."""
    with server.connect() as client:
        return bool(client.info().get("jetstream"))


@pytest.mark.feature("3-047", "3-088")
def test_it_goes_and_comes_with_what_was_stored(tmp_path: Path) -> None:
    on, off = config(tmp_path / "store"), config(None)
    with ServerProcess(tmp_path, config=off, command=MARTLET) as server:
        client = Client(server.port)
        assert client.request("$JS.API.INFO").startswith(NO_RESPONDERS)
        for round_number in range(1, 4):
            assert not is_told(server)
            assert "Reloaded server configuration" in server.reload(on)
            server.wait_log("Reloaded: JetStream")
            server.wait_log("Restarting JetStream")
            assert is_told(server)
            ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            consumer = {"durable_name": "C", "ack_policy": "explicit"}
            ask(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": consumer})
            stored = json.loads(client.request("s", b"x"))
            assert stored == {"stream": "S", "seq": round_number}
            assert ask(client, "CONSUMER.INFO.S.C")["num_pending"] == round_number
            assert "Reloaded server configuration" in server.reload(off)
            assert client.request("$JS.API.INFO").startswith(NO_RESPONDERS)
            assert client.request("s", b"x").startswith(NO_RESPONDERS)
        client.close()
    with ServerProcess(tmp_path, config=on, command=MARTLET) as server:
        client = Client(server.port)
        assert ask(client, "STREAM.INFO.S")["state"]["messages"] == 3
        client.close()


@pytest.mark.feature("3-047", "5-031")
def test_without_its_directory_the_server_goes_on_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with ServerProcess(tmp_path, config=config(None), command=MARTLET) as server:
        client = Client(server.port)
        assert "Reloaded server configuration" in server.reload(config(tmp_path / "file"))
        server.wait_log(r"\[WRN\] Can't start JetStream: .*Not a directory")
        with pytest.raises(HTTPError, match="503") as unhealthy:
            urlopen(f"http://127.0.0.1:{server.http_port}/healthz")
        with unhealthy.value:
            told = json.load(unhealthy.value)
        assert told == {"status": "unavailable", "error": "JetStream not enabled (10076)"}
        (tmp_path / "file").unlink()
        assert "Reloaded server configuration" in server.reload(config(tmp_path / "file"))
        assert ask(client, "INFO")["streams"] == 0
        client.close()


@pytest.mark.feature("3-047")
def test_a_directory_that_cannot_be_opened_is_a_start_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    wrong = ServerProcess(tmp_path, config=config(tmp_path / "file"), command=MARTLET, ready=False)
    with wrong as server:
        assert server.wait_exit() == 1
        server.wait_log(r"\[FTL\] Can't start JetStream: .*Not a directory")
        assert not any("Traceback" in line for line in server.log())
