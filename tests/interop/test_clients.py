"""Other people's clients, unchanged, use the ordinary features. `make interop` runs all of them."""

from __future__ import annotations

import os
import subprocess

import pytest

from .conftest import Servers
from .programs import PROGRAMS, MissingToolError, Program, built, environment

LIBRARIES = {program.name: program for program in PROGRAMS if program.name != "cli"}
CHECKS = {
    "connect_info", "publish_subscribe", "wildcards", "queue_group", "request_reply", "headers",
    "no_responders", "unsubscribe_max", "drain", "large_message", "max_payload", "flush_rtt",
    "auth_refused", "permissions", "tls", "reconnect",
}  # fmt: skip
STREAM_CHECKS = {
    "fetch", "consume", "push", "redelivery", "ordered", "ordered_restart", "kv", "kv_watch",
    "objects",
}  # fmt: skip
MORE_STREAM_CHECKS = {"python": {"push_group"}, "go": {"priority"}}
SECONDS = 60


def run(program: Program, command: tuple[str, ...], servers: Servers) -> tuple[list[str], str]:
    """The lines of a program; it asks for a restart with a line of its own."""
    folder = built(program)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(**servers.urls()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        if line == "restart\n":
            servers.restart()
        elif line == "restart streams\n":
            servers.restart_streams()
        else:
            lines.append(line.rstrip())
    errors = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    process.wait(SECONDS)
    return lines, errors


NAMES = [
    "python",
    *(pytest.param(n, marks=pytest.mark.interop) for n in LIBRARIES if n != "python"),
]


def check(name: str, command: tuple[str, ...], wanted: set[str], servers: Servers) -> None:
    if name != "python" and not os.environ.get("MARTLET_INTEROP"):
        pytest.skip("`make interop` runs this")
    try:
        lines, errors = run(LIBRARIES[name], command, servers)
    except MissingToolError as missing:
        pytest.skip(str(missing))
    failed = [line for line in lines if not line.startswith("ok ")]
    assert not failed, "\n".join([*failed, errors])
    assert {line.removeprefix("ok ") for line in lines} == wanted, errors


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.feature("1-058", "1-060", "1-066", "1-068", "4-003", "4-011", "4-025")
def test_client_library(name: str, servers: Servers) -> None:
    check(name, LIBRARIES[name].run, CHECKS, servers)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.feature("5.012", "5.049", "5.051", "5.052", "5.053", "5.055", "5.056", "5.081")
@pytest.mark.feature(
    "6.001", "6.002", "6.004", "6.006", "6.007", "6.008", "6.009", "6.011", "6.014"
)
@pytest.mark.feature("6.016", "6.017", "6.018")
def test_streams(name: str, servers: Servers) -> None:
    wanted = STREAM_CHECKS | MORE_STREAM_CHECKS.get(name, set())
    check(name, LIBRARIES[name].streams, wanted, servers)
