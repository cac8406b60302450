"""Starts servers for the scripts and keeps one pair for each configuration."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.certificates import write_certificates
from tests.e2e.server import die_with_parent

from .script import Script, ScriptError

COMMANDS = {
    "nats-server": Path(sys.prefix) / "bin" / "nats-server",
    "martlet": Path(sys.prefix) / "bin" / "martlet",
}
START_SECONDS = 60.0


@cache
def certificates() -> tempfile.TemporaryDirectory[str]:
    """One authority and server certificate for all scripts that name `{certificates}`."""
    home = tempfile.TemporaryDirectory(prefix="differential-certificates-")
    write_certificates(Path(home.name))
    return home


def with_paths(text: str) -> str:
    if "{certificates}" not in text:
        return text
    return text.replace("{certificates}", certificates().name)


class Server:
    """One running server of either kind, on a free port of the loopback."""

    def __init__(self, kind: str, script: Script) -> None:
        self.home = tempfile.TemporaryDirectory(prefix=f"differential-{kind}-")
        home = Path(self.home.name)
        self.log = home / "log"
        self.config = home / "server.conf"
        # Never a key of the machine's own: the loopback and a free port are the runner's.
        command = [str(COMMANDS[kind]), "-a", "127.0.0.1", "-p", "-1"]
        command += [with_paths(flag) for flag in script.flags]
        if script.config:
            self.config.write_text(with_paths(script.config))
            command += ["-c", str(self.config)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stderr=log, stdout=log, cwd=home, preexec_fn=die_with_parent
            )
        self.port = self.wait_for(r"Listening for client connections on .*:(\d+)")
        self.wait_for(r"(Server is ready)")

    def wait_for(self, pattern: str, past: int = 0) -> int:
        """The first group of a log line as a number (0 if it is none), past a byte of the log."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if found := re.search(pattern, self.log.read_text()[past:]):
                return int(found[1]) if found[1].isdigit() else 0
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ScriptError(f"no {pattern!r} in the log: {self.log.read_text()[-800:]}")
            time.sleep(0.002)

    def signal(self, name: str) -> None:
        self.process.send_signal(getattr(signal, f"SIG{name}"))

    def reload(self, config: str) -> None:
        past = self.log.stat().st_size
        self.config.write_text(config)
        self.signal("HUP")
        self.wait_for(r"(Reloaded server configuration)", past)

    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        if self.alive():
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.home.cleanup()


class Pool:
    """Servers by kind and configuration; one that died is replaced."""

    def __init__(self) -> None:
        self.running: dict[object, Server] = {}

    def get(self, kind: str, script: Script) -> Server:
        key = (kind, script.server_key)
        server = self.running.get(key)
        if server is not None and not server.alive():
            server.stop()
            server = None
        if server is None:
            server = self.running[key] = Server(kind, script)
        return server

    def stop(self) -> None:
        for server in self.running.values():
            server.stop()
        self.running.clear()
