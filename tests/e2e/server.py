"""Starts the real process for a test and sees to it that nothing of it is left over.

    with ServerProcess(tmp_path, "-D") as server:
        with server.connect() as raw:
            raw.expect("INFO ")

The port is always free (`-p -1`); `server.port` is what the log line says. `MARTLET_COMMAND` names
another command to start instead, for instance the genuine nats-server.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

# A deadline is met in failure only: long enough for a machine that does much else.
START_TIMEOUT_S = 60.0
WAIT_S = 30.0
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
BIN = Path(sys.prefix) / "bin"
MARTLET = str(BIN / "martlet")
NATS_SERVER = str(BIN / "nats-server")


def die_with_parent() -> None:
    """Runs in the child before exec: a test run that is killed leaves no server behind.

    A run in the background ignores these signals; what it starts would do so as well.
    """
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def run(*args: str, command: str = "", timeout_s: float = 60.0, **more: Any) -> Any:
    """Runs the command to its end, for flags that do not serve (`-v`, `-t`, `--signal`)."""
    command = command or os.environ.get("MARTLET_COMMAND", MARTLET)
    return subprocess.run(
        [command, *args],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        preexec_fn=die_with_parent,
        **more,
    )


def wait_for(what: Callable[[], Any], why: str, timeout_s: float = WAIT_S) -> Any:
    """Asks until the answer is true; never longer than the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = what()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s in vain for: {why}")
        time.sleep(0.002)


class ServerProcess:
    """One server in a directory of its own. `config` is the text of its configuration file."""

    def __init__(
        self,
        directory: Path,
        *args: str,
        config: str | None = None,
        command: str = "",
        env: dict[str, str] | None = None,
        ready: bool = True,
    ) -> None:
        self.directory = directory
        self.args = args
        self.command = command or os.environ.get("MARTLET_COMMAND", MARTLET)
        self.config_path = directory / "server.conf"
        if config is not None:
            self.config_path.write_text(config)
        self._env = {**os.environ, **(env or {})}
        self._wait_ready = ready
        self._lines: list[str] = []
        self._arrived = threading.Condition()
        self.host = "127.0.0.1"
        self.port = 0
        self.http_port = 0

    def __enter__(self) -> ServerProcess:
        argv = [self.command]
        if not any(a in ("-p", "--port") or a.startswith(("-p=", "--port=")) for a in self.args):
            argv += ["-p", "-1"]
        if self.config_path.exists():
            argv += ["-c", str(self.config_path)]
        self.process = subprocess.Popen(
            [*argv, *self.args],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.directory,
            env=self._env,
            preexec_fn=die_with_parent,
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if self._wait_ready:
            self.wait_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stderr, self.process.stdout):
            if pipe is not None:
                pipe.close()
        if error is not None:
            print("\n".join(["--- server log", *self._lines]))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._arrived:
                self._lines.append(line.decode(errors="replace").rstrip("\r\n"))
                self._arrived.notify_all()
        with self._arrived:
            self._arrived.notify_all()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    def wait_ready(self) -> None:
        line = self.wait_log(r"Listening for client connections on \S+:\d+$", START_TIMEOUT_S)
        self.port = int(line.rpartition(":")[2])
        self.wait_log("Server is ready", START_TIMEOUT_S)
        for line in self.log():
            if "Starting http monitor on" in line or "Starting https monitor on" in line:
                self.http_port = int(line.rpartition(":")[2])

    def log(self) -> list[str]:
        """Every log line so far (stderr)."""
        with self._arrived:
            return list(self._lines)

    def wait_log(self, pattern: str, timeout_s: float = WAIT_S, since: int = 0) -> str:
        """The first line, of those behind `since`, in which the regular expression is found."""
        deadline = time.monotonic() + timeout_s
        seen = since
        with self._arrived:
            while True:
                for line in self._lines[seen:]:
                    if re.search(pattern, line):
                        return line
                seen = max(len(self._lines), since)
                left = deadline - time.monotonic()
                over = self.process.poll() is not None and not self._reader.is_alive()
                if left <= 0 or over:
                    raise AssertionError(f"no log line {pattern!r} in:\n" + "\n".join(self._lines))
                self._arrived.wait(min(left, 0.2))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_exit(self, timeout_s: float = WAIT_S) -> int:
        """The exit code; the log is whole then."""
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def rewrite_config(self, text: str) -> None:
        self.config_path.write_text(text)

    def reload(self, config: str) -> str:
        """Rewrites the configuration, sends SIGHUP; the log line that says how it went."""
        since = len(self.log())
        self.rewrite_config(config)
        self.signal(signal.SIGHUP)
        return self.wait_log("Reloaded server config|Failed to reload", since=since)

    def connect(self) -> RawClient:
        return RawClient(self.host, self.port)


class RawClient:
    """A client that sends and sees bytes."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=WAIT_S)
        self.buffer = b""

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: str | bytes) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def line(self) -> str:
        """The next line, without its end; empty when the server has closed. PINGs are answered."""
        line = self._any_line()
        while line == "PING":
            self.send("PONG\r\n")
            line = self._any_line()
        return line

    def _any_line(self) -> str:
        while b"\n" not in self.buffer:
            data = self.socket.recv(65536)
            if not data:
                rest, self.buffer = self.buffer, b""
                return rest.decode()
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.rstrip(b"\r").decode()

    def expect(self, start: str) -> str:
        """The next line, which must begin so."""
        line = self.line()
        assert line.startswith(start), f"expected {start!r}, got {line!r}"
        return line

    def info(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.expect("INFO ")[5:])
        return parsed

    def handshake(self, **options: Any) -> dict[str, Any]:
        """Reads INFO, sends CONNECT and PING, waits for PONG; the INFO."""
        info = self.info()
        self.connect_with(**options)
        self.expect("PONG")
        return info

    def connect_with(self, **options: Any) -> None:
        """CONNECT (quiet unless told otherwise) and PING; the answer is for the caller."""
        options = {"verbose": False, "pedantic": False, "protocol": 0, "headers": True} | options
        self.send(f"CONNECT {json.dumps(options)}\r\nPING\r\n")

    def closed(self) -> bool:
        """Reads until the server closes; false if it did not in time."""
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except ConnectionResetError:
            pass
        return True
