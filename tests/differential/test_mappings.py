"""What both servers say of subject mappings beside the messages themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from config.errors import ConfigError
from config.load import read_file
from server.core.transform import mapping_problem
from tests.differential.test_monitoring import fetch
from tests.e2e.server import MARTLET, NATS_SERVER, ServerProcess, run

pytestmark = pytest.mark.peer
CONFIG = """
http: "127.0.0.1:-1"
http_base_path: "/nats"
mappings {
  "a.*": [ { dest: "b.$1", weight: 20 }, { dest: "c.$1", weight: 30 } ]
  x: { dest: y, weight: 10, cluster: east }
}
accounts { A { users: [ { user: a, password: p } ], mappings { x: y } }, B {} }
no_auth_user: a
"""


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    with ExitStack() as stack:
        found = []
        for command in (NATS_SERVER, MARTLET):
            home: Path = tmp_path_factory.mktemp("mappings")
            process = ServerProcess(home, "-V", config=CONFIG, command=command)
            found.append(stack.enter_context(process))
        yield found[0], found[1]


@pytest.mark.feature("5-029")
@pytest.mark.parametrize("account", ["$G", "A", "B"])
def test_what_accountz_shows(servers: tuple[ServerProcess, ServerProcess], account: str) -> None:
    genuine, ours = (detail(server, account) for server in servers)
    assert ours.get("mappings") == genuine.get("mappings")
    assert ("mappings" in genuine) == (account != "B")


def detail(server: ServerProcess, account: str) -> dict[str, Any]:
    found: dict[str, Any] = fetch(server, f"/accountz?acc={account}")[3]["account_detail"]
    return found


@pytest.mark.feature("2-044")
def test_what_the_log_traces(servers: tuple[ServerProcess, ServerProcess]) -> None:
    lines = []
    for server in servers:
        with server.connect() as client:
            client.info()
            client.connect_with()
            client.send("PUB x 1\r\na\r\n")
            lines += re.findall(r"<<- \[MAPPING.*", server.wait_log("MAPPING"))
    assert lines == ["<<- [MAPPING x -> y]"] * 2


@pytest.mark.feature("4-053")
@pytest.mark.parametrize(
    "destination",
    [
        *("b.$1", "b.$2", "b.{{wildcard(2)}}", "b.{{wildcard()}}", "b.{{wildcard(1,2)}}"),
        *("b.{{what(1)}}", "b.{{partition(x)}}", "b.{{split(1)}}", "b.*", "b.>", "b..c", "b c"),
        *("{{splitfromleft(1,2)}}", "{{random(3,1)}}", "b.{{partition(3,1)}}.c", ">.b"),
    ],
)
def test_which_destinations_are_good(tmp_path: Path, destination: str) -> None:
    path = tmp_path / "f.conf"
    path.write_text(f'mappings {{ "a.*": "{destination}" }}')
    genuine = run("-t", "-c", str(path), command=NATS_SERVER)
    try:
        read_file(str(path), {}, mapping_problem)
        ours = ""
    except ConfigError as error:
        ours = str(error)
    assert bool(ours) == (genuine.returncode != 0), genuine.stderr
    if ours:
        assert ours.partition(" ")[2] in genuine.stderr
