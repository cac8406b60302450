"""Bad bodies of `$SYS` requests: refused or answered as by the genuine server.

Compared are the parts of the envelope and the code; the texts of refusals are the decoder's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from tests.differential.jetstream.bad_bodies import NUMBERS, SHAPES, WRONG
from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, NATS_SERVER, ServerProcess

CONFIG = """
jetstream {{ store_dir: "{path}" }}
accounts {{
  SYS {{ users = [{{user: sys, password: x}}] }}
  A {{ jetstream: enabled, users = [{{user: a, password: x}}] }}
}}
system_account: SYS
"""
EVERYWHERE = ("server_name", "tags", "exact_match")
SUBJECTS: Final[dict[str, tuple[str, ...]]] = {
    "SERVER.PING": (),
    "SERVER.PING.STATSZ": (),
    "SERVER.PING.VARZ": (),
    "SERVER.PING.SUBSZ": ("offset", "limit", "subscriptions", "account", "test"),
    "SERVER.PING.CONNZ": ("sort", "auth", "offset", "limit", "cid", "state", "user"),
    "SERVER.PING.ROUTEZ": (),
    "SERVER.PING.GATEWAYZ": (),
    "SERVER.PING.LEAFZ": (),
    "SERVER.PING.ACCOUNTZ": ("account",),
    "SERVER.PING.JSZ": ("account", "accounts", "streams", "offset", "limit"),
    "SERVER.PING.HEALTHZ": ("js-enabled", "account", "stream", "details"),
    "SERVER.PING.EXPVARZ": (),
    "SERVER.PING.PROFILEZ": ("name", "debug", "duration"),
    "ACCOUNT.A.CONNZ": ("offset",),
    "ACCOUNT.A.SUBSZ": ("offset",),
    "ACCOUNT.A.JSZ": ("streams",),
    "ACCOUNT.A.INFO": (),
    "ACCOUNT.PING.STATZ": ("include_unused",),
}
# Deeper than Python's decoder goes, and numbers of more digits than any program has use for.
REFUSED_HERE = ("deep, but readable", "999999999999999999999999", "cid: 18446744073709551616")
# Nobody answers who is not meant.
MEANS_ANOTHER = ('server_name: "x"',)

Pair = tuple[Client, Client]
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as opened:
        clients = []
        for command in (NATS_SERVER, MARTLET):
            path: Path = tmp_path_factory.mktemp("system")
            (path / "server.conf").write_text(CONFIG.format(path=path))
            process = ServerProcess(path, "-c", str(path / "server.conf"), command=command)
            server = opened.enter_context(process)
            clients.append(opened.enter_context(closing(Client(server.port, "sys", "x"))))
        yield clients[0], clients[1]


def bodies(keys: tuple[str, ...]) -> dict[str, bytes]:
    found = dict(SHAPES)
    for key in keys:
        for value in WRONG + NUMBERS:
            found[f"{key}: {value[:24].decode()}"] = f'{{"{key}":{value.decode()}}}'.encode()
    return {
        name: body
        for name, body in found.items()
        if not name.endswith(REFUSED_HERE) and name not in MEANS_ANOTHER
    }


def parts(client: Client, subject: str, body: bytes) -> tuple[list[str], int]:
    answer = json.loads(client.request("$SYS.REQ." + subject, body))
    return sorted(answer), answer.get("error", {}).get("code", 200)


@pytest.mark.feature("5-034", "5-035", "5-036", "5-039")
@pytest.mark.parametrize("subject", SUBJECTS)
def test_bad_bodies_of_system_requests(systems: Pair, subject: str) -> None:
    asked = bodies(SUBJECTS[subject] + EVERYWHERE)
    genuine, ours = (
        {name: parts(client, subject, body) for name, body in asked.items()} for client in systems
    )
    assert ours == genuine
