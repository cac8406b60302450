"""Signals: what each means to a running server, and `--signal`, which sends them to one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import Protocol

from server.ops.logging import Logger

COMMANDS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}

SPOKEN = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}


class Loop(Protocol):
    """What is needed of the event loop."""

    def add_signal_handler(self, sig: int, callback: Callable[[], None]) -> None: ...


class Controls(Protocol):
    """What signals may ask of the server."""

    lame_duck: bool

    def shut_down(self) -> None: ...

    def enter_lame_duck(self) -> None: ...

    def reload(self) -> None: ...

    def reopen_log(self) -> None: ...


def install(loop: Loop, controls: Controls, logger: Logger) -> None:
    """From here on signals are handled on the loop."""

    def terminate() -> None:
        # A lame duck already leaves, at its own pace.
        if not controls.lame_duck:
            controls.shut_down()

    actions = {
        signal.SIGINT: controls.shut_down,
        signal.SIGTERM: terminate,
        signal.SIGUSR1: controls.reopen_log,
        signal.SIGUSR2: controls.enter_lame_duck,
        signal.SIGHUP: controls.reload,
    }
    for number, action in actions.items():

        def handle(number: signal.Signals = number, action: Callable[[], None] = action) -> None:
            logger.notice(f'Trapped "{SPOKEN[number]}" signal')
            action()

        loop.add_signal_handler(number, handle)


class SignalError(Exception):
    """The command could not be carried out; the text is for the person at the terminal."""


def send(command: str, target: str, program: str, verbs: Collection[str] = ()) -> None:
    """Carries out `--signal command[=target]`. `target` is a pid, a pid file, or a pid prefix with
    `*`; without one the only process called `program` is meant, `verbs` of it being no servers."""
    if target and Path(target).is_file():
        target = read_pid_file(target)
    prefix = target.removesuffix("*")
    is_glob = target.endswith("*")
    # Process 0 would be every process of the terminal.
    if prefix and not (prefix.isdecimal() and int(prefix)):
        raise SignalError(f"invalid pid: {prefix}")
    pids = [int(prefix)] if prefix and not is_glob else pids_of(program, verbs)
    if len(pids) > 1 and not is_glob:
        listed = "".join(f"\n{pid}" for pid in pids)
        raise SignalError(f"multiple {program} processes running:{listed}")
    if not pids:
        raise SignalError(f"no {program} processes running")
    if command not in COMMANDS:
        raise SignalError(f'unknown signal "{command}"')
    send_to_all([pid for pid in pids if str(pid).startswith(prefix)], command)


def read_pid_file(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise SignalError(f"could not read pid file {path}: {error.strerror}") from error


def send_to_all(pids: list[int], command: str) -> None:
    failures = ""
    for pid in pids:
        try:
            os.kill(pid, COMMANDS[command])
        except OSError as error:
            reason = (error.strerror or "").lower()
            failures += f'\nsignal "{command}" {pid}: {reason}'
    if failures:
        raise SignalError(failures)


def pids_of(program: str, verbs: Collection[str]) -> list[int]:
    """Running servers of that name, without this process."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return sorted(pid for pid in found if pid != os.getpid() and serves_as(pid, program, verbs))


def serves_as(pid: int, program: str, verbs: Collection[str]) -> bool:
    """The kernel names a process after the script or link it was started by, 15 bytes of it.
    A zombie has no arguments left."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        arguments = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except OSError:
        return False
    return name == program[:15] and arguments != [""] and verb_of(arguments, program) not in verbs


def verb_of(arguments: Sequence[str], program: str) -> str:
    """What stands behind the program's own name, which an interpreter may stand before."""
    after = dropwhile(lambda argument: Path(argument).name != program, arguments)
    return next(islice(after, 1, None), "")
