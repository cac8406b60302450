"""The `nats` command works against the server: pub, sub, request, reply, rtt, server check."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .conftest import Servers

pytestmark = [pytest.mark.interop, pytest.mark.feature("1-041", "1-043", "1-057", "1-045")]
Nats = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def nats(servers: Servers, nats_command: Path, nats_environment: dict[str, str]) -> Iterator[Nats]:
    """Starts `nats ARGUMENTS` with nothing of the user's own configuration."""

    with ExitStack() as started:

        def start(*arguments: str) -> subprocess.Popen[str]:
            process = started.enter_context(
                subprocess.Popen(
                    [nats_command, "--server", servers.plain, "--timeout", "5s", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=nats_environment,
                )
            )
            started.callback(process.kill)
            return process

        yield start


def output(process: subprocess.Popen[str], code: int = 0) -> str:
    text, _ = process.communicate(timeout=20)
    assert process.returncode == code, text
    return text


def until(process: subprocess.Popen[str], words: str) -> None:
    """Reads the output up to the line with these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the command ended without {words!r}")


def test_publish_and_subscribe(nats: Nats) -> None:
    subscriber = nats("sub", "cli.>", "--count", "3")
    until(subscriber, "Subscribing on cli.>")
    text = output(nats("pub", "cli.x", "message {{Count}}", "--count", "3", "-H", "Key:value"))
    assert text.count('Published 9 bytes to "cli.x"') == 3, text
    heard = output(subscriber)
    assert [f"message {n}" in heard for n in (1, 2, 3)] == [True] * 3, heard
    assert heard.count("Key: value") == 3, heard


def test_request_and_reply(nats: Nats) -> None:
    until(nats("reply", "cli.service", "answer to {{Request}}"), "Listening on")
    answer = output(nats("request", "cli.service", "question", "--raw"))
    assert "answer to question" in answer


def test_request_without_responder(nats: Nats) -> None:
    assert "No responders are available" in output(nats("request", "cli.nobody", "x"))


def test_round_trip_time(nats: Nats) -> None:
    assert "127.0.0.1" in output(nats("rtt"))


def test_server_check_connection(nats: Nats) -> None:
    assert output(nats("server", "check", "connection")).startswith("OK Connection OK")
