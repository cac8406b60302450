"""An account, or its JetStream, goes with one reload and comes with another: all is as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess, wait_for

OTHER = "B { users: [ {user: b, password: b} ] }"
USERS = "users: [ {user: a, password: a} ]"
WITH = f"A {{ jetstream: enabled, {USERS} }}"
ABSENCES = {"account": "", "JetStream": f"A {{ {USERS} }}"}


def config(tmp_path: Path, account: str) -> str:
    store = f'jetstream {{ store_dir: "{tmp_path}/store" }}'
    return f"listen: 127.0.0.1:-1\n{store}\naccounts {{ {OTHER}\n{account} }}\n"


def ask(client: Client, subject: str, body: Any = None) -> Any:
    payload = b"" if body is None else json.dumps(body).encode()
    return json.loads(client.request(f"$JS.API.{subject}", payload))


def signed_in(server: ServerProcess) -> Client:
    return Client(server.port, user="a", password="a")


def take(server: ServerProcess, count: int) -> list[str]:
    """Fetches one by one and acknowledges; the payloads."""
    found = []
    with server.connect() as raw:
        raw.handshake(user="a", **{"pass": "a"})
        raw.send("SUB in 7\r\nSUB kept 8\r\n")
        for _ in range(count):
            raw.send("PUB $JS.API.CONSUMER.MSG.NEXT.S.C in 1\r\n1\r\n")
            acknowledge = raw.expect("MSG s.").split()[3]
            found.append(raw.line())
            raw.send(f"PUB {acknowledge} kept 4\r\n+ACK\r\n")
            raw.expect("MSG kept 8 0")
            assert raw.line() == ""
    return found


def fill(client: Client) -> None:
    ask(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
    ask(client, "STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "storage": "memory"})
    ask(client, "STREAM.CREATE.COPY", {"name": "COPY", "mirror": {"name": "S"}})
    consumer = {"durable_name": "C", "ack_policy": "explicit"}
    ask(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": consumer})
    for number in range(6):
        client.request(f"s.{number}", b"%d" % number)
    client.request("m", b"lost")


@pytest.mark.feature("3-088", "9.011")
@pytest.mark.parametrize("gone", ABSENCES)
def test_what_an_account_stored_is_back_with_it(tmp_path: Path, gone: str) -> None:
    with ServerProcess(tmp_path, config=config(tmp_path, WITH), command=MARTLET) as server:
        client = signed_in(server)
        fill(client)
        assert take(server, 2) == ["0", "1"]
        assert "Reloaded" in server.reload(config(tmp_path, ABSENCES[gone]))
        if gone == "JetStream":
            assert ask(client, "INFO")["error"]["err_code"] == 10039
        client.close()
        assert "Reloaded" in server.reload(config(tmp_path, WITH))
        client = signed_in(server)
        told = json.loads(client.request("$SYS.REQ.USER.INFO"))
        assert told["data"]["account"] == "A"
        assert ask(client, "INFO")["streams"] == 3
        assert ask(client, "STREAM.INFO.S")["state"]["messages"] == 6
        assert ask(client, "STREAM.INFO.M")["state"]["messages"] == 0
        assert take(server, 3) == ["2", "3", "4"]
        client.request("s.6", b"6")
        assert take(server, 2) == ["5", "6"]
        info = ask(client, "CONSUMER.INFO.S.C")
        assert (info["ack_floor"]["stream_seq"], info["num_pending"]) == (7, 0)
        wait_for(
            lambda: ask(client, "STREAM.INFO.COPY")["state"]["messages"] == 7, "the mirror's copy"
        )
        client.close()


def test_it_can_go_and_come_again_and_again(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config=config(tmp_path, WITH), command=MARTLET) as server:
        client = signed_in(server)
        fill(client)
        client.close()
        for number in range(6):
            assert take(server, 1) == [str(number)]
            for account in ABSENCES.values():
                assert "Reloaded" in server.reload(config(tmp_path, account))
            assert "Reloaded" in server.reload(config(tmp_path, WITH))
    with ServerProcess(tmp_path, config=config(tmp_path, WITH), command=MARTLET) as server:
        client = signed_in(server)
        assert ask(client, "CONSUMER.INFO.S.C")["ack_floor"]["stream_seq"] == 6
        client.close()


def test_an_account_that_comes_later_finds_what_was_kept(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config=config(tmp_path, WITH), command=MARTLET) as server:
        client = signed_in(server)
        fill(client)
        client.close()
        assert take(server, 2) == ["0", "1"]
    with ServerProcess(tmp_path, config=config(tmp_path, ""), command=MARTLET) as server:
        assert "Reloaded" in server.reload(config(tmp_path, WITH))
        assert take(server, 1) == ["2"]
