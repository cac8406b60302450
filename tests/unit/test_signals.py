"""`--signal`: finding processes and telling them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.ops import signals
from server.ops.signals import SignalError, send
from tests.e2e.server import die_with_parent, wait_for


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three processes of a name that nobody else has."""
    # Of one width: a star means every name that begins so.
    name = f"slp{os.getpid():08d}"
    program = tmp_path / name
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    started = [subprocess.Popen([program, "60"], preexec_fn=die_with_parent) for _ in range(3)]
    wait_for(lambda: len(signals.pids_of(name, ())) == 3, "three processes")
    yield started
    for process in started:
        process.kill()
        process.wait()


def name_of(sleepers: list[subprocess.Popen[bytes]]) -> str:
    return Path(f"/proc/{sleepers[0].pid}/comm").read_text().strip()


@pytest.mark.feature("2-027", "2-026")
@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("stop", signal.SIGKILL),
        ("quit", signal.SIGINT),
        ("term", signal.SIGTERM),
        ("ldm", signal.SIGUSR2),
        ("reopen", signal.SIGUSR1),
        ("reload", signal.SIGHUP),
    ],
)
def test_each_command_is_a_signal(
    sleepers: list[subprocess.Popen[bytes]], command: str, number: int
) -> None:
    send(command, str(sleepers[0].pid), "anything")
    assert sleepers[0].wait(30) == -number


@pytest.mark.feature("2-027")
def test_the_target_may_be_a_pid_file(
    sleepers: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    pid_file = tmp_path / "x.pid"
    pid_file.write_text(str(sleepers[1].pid))
    send("term", str(pid_file), "anything")
    assert sleepers[1].wait(30) == -signal.SIGTERM


@pytest.mark.feature("2-028")
def test_without_a_target_there_must_be_one_process(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    name = name_of(sleepers)
    with pytest.raises(SignalError) as refusal:
        send("term", "", name)
    pids = "\n".join(str(process.pid) for process in sorted(sleepers, key=lambda p: p.pid))
    assert str(refusal.value) == f"multiple {name} processes running:\n{pids}"
    for process in sleepers[1:]:
        process.kill()
        process.wait()
    send("term", "", name)
    assert sleepers[0].wait(30) == -signal.SIGTERM


@pytest.mark.feature("2-028")
def test_a_command_of_that_name_that_serves_nothing_is_not_meant(
    sleepers: list[subprocess.Popen[bytes]],
) -> None:
    name = name_of(sleepers)
    with pytest.raises(SignalError, match=f"no {name} processes running"):
        send("term", "*", name, ("archive", "60"))
    script = ["/venv/bin/python", f"/venv/bin/{name}", "archive", "--to", name]
    assert signals.verb_of(script, name) == "archive"
    assert signals.verb_of([name], name) == signals.verb_of(["python", "-m", "x"], name) == ""


@pytest.mark.feature("2-028")
def test_a_star_hits_all_that_begin_so(sleepers: list[subprocess.Popen[bytes]]) -> None:
    send("term", "*", name_of(sleepers))
    assert [process.wait(30) for process in sleepers] == [-signal.SIGTERM] * 3


@pytest.mark.feature("2-027", "2-028")
@pytest.mark.parametrize(
    ("command", "target", "text"),
    [
        ("term", "", "no nobody-has-this processes running"),
        ("term", "x12", "invalid pid: x12"),
        ("term", "0", "invalid pid: 0"),
        ("nonsense", "1", 'unknown signal "nonsense"'),
        ("term", "4194399", '\nsignal "term" 4194399: no such process'),
    ],
)
def test_refusals(command: str, target: str, text: str) -> None:
    with pytest.raises(SignalError) as refusal:
        send(command, target, "nobody-has-this")
    assert str(refusal.value) == text
