"""The `nats` command as operators use it: streams, the account, reports of the server, events."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.server import ServerProcess

pytestmark = pytest.mark.interop
CONFIG = """
server_name: s1
accounts {
  APP { jetstream: enabled, users: [{user: a, password: a}] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
jetstream { store_dir: "STORE" }
"""
Start = Callable[..., "subprocess.Popen[str]"]
Run = Callable[..., str]


@pytest.fixture
def start(tmp_path: Path, nats_command: Path, nats_environment: dict[str, str]) -> Iterator[Start]:
    """Starts `nats ARGUMENTS` as a user of one server, with nothing of our own configuration."""
    config = CONFIG.replace("STORE", str(tmp_path / "js"))
    other = os.environ.get("INTEROP_COMMAND", "")
    with ServerProcess(tmp_path, config=config, command=other) as server, ExitStack() as started:

        def begin(*arguments: str, user: str = "a") -> subprocess.Popen[str]:
            url = f"nats://{user}:{user}@127.0.0.1:{server.port}"
            process = started.enter_context(
                subprocess.Popen(
                    [nats_command, "--no-context", "--server", url, "--timeout", "5s", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=nats_environment,
                )
            )
            started.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def run(start: Start) -> Run:
    def to_its_end(*arguments: str, user: str = "a", code: int = 0) -> str:
        process = start(*arguments, user=user)
        text, _ = process.communicate(timeout=20)
        assert process.returncode == code, text
        return text

    return to_its_end


def make_orders(run: Run) -> None:
    run("stream", "add", "ORDERS", "--subjects", "orders.>", "--defaults")
    run("pub", "orders.x", "message {{Count}}", "--count", "50", "--jetstream")
    run("pub", "orders.y", "other {{Count}}", "--count", "5")


@pytest.mark.feature(
    "1.028", "1.030", "1.031", "1.032", "1.033", "1.034", "1.035", "1.037", "1.038"
)
def test_a_stream_is_made_looked_at_changed_emptied_and_removed(run: Run) -> None:
    make_orders(run)
    assert "Maximum Messages: 100,000" in run(
        "stream", "edit", "ORDERS", "--max-msgs", "100000", "--force"
    )
    assert re.search(r"Messages: +55\b", run("stream", "info", "ORDERS"))
    assert "ORDERS" in run("stream", "ls")
    assert re.search(r"ORDERS.* 55 ", run("stream", "report"))
    assert "message 3" in run("stream", "get", "ORDERS", "3")
    assert "other 5" in run("stream", "get", "ORDERS", "--last-for", "orders.y")
    run("stream", "rmm", "ORDERS", "5", "--force")
    run("stream", "get", "ORDERS", "5", code=1)
    assert "orders.y" in run("stream", "subjects", "ORDERS")
    purged = run("stream", "purge", "ORDERS", "--subject", "orders.y", "--force")
    assert re.search(r"Messages: +49\b", purged), purged
    run("stream", "copy", "ORDERS", "COPY", "--subjects", "copied")
    assert json.loads(run("stream", "ls", "--json")) == ["COPY", "ORDERS"]
    for name in ("COPY", "ORDERS"):
        run("stream", "rm", name, "--force")
    assert "No Streams defined" in run("stream", "ls")


@pytest.mark.feature("1.026", "3.001")
def test_the_account_and_its_streams_are_checked(run: Run) -> None:
    make_orders(run)
    assert re.search(r"Streams: +1 of Unlimited", run("account", "info"))
    assert run("server", "check", "stream", "--stream", "ORDERS").startswith("OK ORDERS")
    assert run("server", "check", "jetstream").startswith("OK JetStream")
    missing = run("server", "check", "stream", "--stream", "NONE", code=2)
    assert "CRITICAL" in missing


@pytest.mark.feature("5-034", "5-035", "5-045", "1.067")
def test_the_server_is_listed_and_reported_on(run: Run) -> None:
    make_orders(run)

    def ask(*arguments: str) -> str:
        return run("server", *arguments, user="s")

    assert "s1" in ask("list")
    assert "Server information for s1" in ask("info")
    for report in ("connections", "accounts", "jetstream", "health"):
        assert re.search(r"s1|SYS", ask("report", report)), report
    for what in ("variables", "connections", "jetstream", "subscriptions", "accounts"):
        answer = json.loads(ask("request", what))
        assert answer["server"]["name"] == "s1", what
        assert "error" not in answer, what
    assert "JetStream: true" in ask("account", "info", "APP")
    assert ask("check", "server", "--name", "s1").startswith("OK s1")


@pytest.mark.feature("5-046", "5-047", "1.080", "1.082")
def test_events_are_told(start: Start, run: Run) -> None:
    events = start("events", "--js-advisory")
    connections = start("events", "--srv-advisory", user="s")
    for process in (events, connections):
        assert process.stdout is not None
        while "Listening for" not in (line := process.stdout.readline()):
            assert line, "the command ended"
    run("stream", "add", "ORDERS", "--subjects", "orders.>", "--defaults")
    assert events.stdout is not None
    assert connections.stdout is not None
    heard = ""
    while not all(word in heard for word in ("ORDERS", "JetStream API Access")):
        line = events.stdout.readline()
        assert line, heard
        heard += line
    told = ""
    while not all(word in told for word in ("Client Connection", "Client Disconnection")):
        line = connections.stdout.readline()
        assert line, told
        told += line
