"""`nats stream backup` and `restore`: on one server, and between the genuine server and ours."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.server import MARTLET, NATS_SERVER, ServerProcess

pytestmark = [pytest.mark.interop, pytest.mark.feature("1.039", "8.007")]
Nats = Callable[..., str]
COMMANDS = {"ours": MARTLET, "genuine": NATS_SERVER}
MESSAGES = 20_000


@pytest.fixture
def nats(nats_command: Path, nats_environment: dict[str, str]) -> Nats:
    """Runs `nats ARGUMENTS` against one server to its end; what it printed."""

    def run(server: ServerProcess, *arguments: str) -> str:
        done = subprocess.run(
            [nats_command, "--server", server.url, "--timeout", "5s", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=nats_environment,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, ServerProcess]]:
    with ExitStack() as started:
        running = {}
        for name, command in COMMANDS.items():
            home = tmp_path / name
            home.mkdir()
            process = ServerProcess(home, "-js", "-sd", str(home), command=command)
            running[name] = started.enter_context(process)
        yield running


@pytest.mark.parametrize(
    ("maker", "taker"), [("ours", "ours"), ("ours", "genuine"), ("genuine", "ours")]
)
def test_backup_and_restore(
    nats: Nats, servers: dict[str, ServerProcess], tmp_path: Path, maker: str, taker: str
) -> None:
    source, target = servers[maker], servers[taker]
    folder = str(tmp_path / "backup")
    nats(source, "stream", "add", "ORDERS", "--subjects", "orders.>", "--defaults")
    nats(source, "consumer", "add", "ORDERS", "C", "--pull", "--ack", "explicit", "--defaults")
    nats(source, "bench", "js", "pub", "async", "orders.new", "--stream", "ORDERS", "--size", "100",
         "--msgs", str(MESSAGES), "--batch", "500", "--no-progress")  # fmt: skip
    nats(source, "stream", "rmm", "ORDERS", "17", "--force")
    before = json.loads(nats(source, "stream", "info", "ORDERS", "--json"))["state"]
    assert before["messages"] == MESSAGES - 1
    nats(source, "stream", "backup", "ORDERS", folder, "--consumers", "--no-progress")
    nats(source, "stream", "rm", "ORDERS", "--force")
    nats(target, "stream", "restore", folder, "--no-progress")
    after = json.loads(nats(target, "stream", "info", "ORDERS", "--json"))["state"]
    assert after == before
    info = json.loads(nats(target, "consumer", "info", "ORDERS", "C", "--json"))
    assert info["num_pending"] == MESSAGES - 1
