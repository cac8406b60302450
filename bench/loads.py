"""The measurements: each runs on fresh servers of one program and gives named numbers."""

import json
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from bench.programs import BIN, BenchError, Program, Server

LOADGEN = BIN / "martlet-loadgen"
LOAD_TIMEOUT_S = 120.0

ISOLATION_TURNS = 3
PERMISSION_TURNS = 3

# Whoever connects is this user: wildcards that allow, and others that deny.
PERMISSIONS = """
authorization {
  users: [{user: u, password: p, permissions: {
    publish: {allow: ["bench.>", "other.*.x"], deny: ["bench.secret.>", "*.never"]}
    subscribe: {allow: ["bench.>", "_INBOX.>"], deny: ["bench.*.hidden"]}
  }}]
}
no_auth_user: u
"""

Numbers = dict[str, float]


@dataclass(frozen=True)
class Scale:
    """How much of everything. Only FULL gives numbers worth comparing."""

    name: str
    seconds: float
    warmup_s: float
    connections: int
    subscriptions: int
    settle_s: float
    idle_s: float
    starts: int


FULL = Scale("full", 2.0, 0.5, 10_000, 1_000_000, 1.0, 10.0, 10)
SMOKE = Scale("smoke", 0.05, 0.0, 40, 2_000, 0.0, 0.1, 1)

Run = Callable[[Program, Scale], Numbers]


def options(**values: object) -> list[str]:
    """`at_once=64` becomes `--at-once 64`; True becomes a bare flag."""
    words: list[str] = []
    for name, value in values.items():
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


def generate(server: Server, load: str, **values: object) -> Numbers:
    """Runs one load to its end and returns what it reports."""
    where = options(port=server.port, server_pid=server.process.pid)
    done = subprocess.run(
        [LOADGEN, load, *where, *options(**values)],
        capture_output=True,
        text=True,
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        said = b"".join(server.last_lines).decode(errors="replace")[-300:]
        raise BenchError(f"{done.stderr.strip()} (server's log ends: {said.strip() or 'empty'})")
    return {k: v for k, v in json.loads(done.stdout).items() if not isinstance(v, str)}


def stream(*, publishers: int, subscribers: int, subjects: int, size: int) -> Run:
    def run(program: Program, scale: Scale) -> Numbers:
        with program.running() as server:
            return generate(
                server,
                "stream",
                publishers=publishers,
                subscribers=subscribers,
                subjects=subjects,
                size=size,
                seconds=scale.seconds,
                warmup=scale.warmup_s,
            )

    return run


def latency(*, requesters: int, responders: int) -> Run:
    queue = {"queue": True} if responders > 1 else {}

    def run(program: Program, scale: Scale) -> Numbers:
        with program.running() as server:
            return generate(
                server,
                "latency",
                requesters=requesters,
                responders=responders,
                seconds=1.5 * scale.seconds,
                warmup=scale.warmup_s,
                **queue,
            )

    return run


def request(port: int, subject: str, body: bytes) -> bytes:
    """One request over a connection of its own; the answer's payload."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b'CONNECT {"verbose":false}\r\nSUB _INBOX.ask 1\r\n')
        client.sendall(f"PUB {subject} _INBOX.ask {len(body)}\r\n".encode() + body + b"\r\n")
        lines = client.makefile("rb")
        for line in lines:
            if line.startswith(b"MSG "):
                return lines.read(int(line.split()[-1]))
    raise BenchError(f"no answer to {subject}")


def jetstream(*, storage: str, in_flight: int, sync: str = "", peer_sync: str = "") -> Run:
    """Publishes to one stream, each acknowledged; `sync` and `peer_sync` are sync_interval."""

    def run(program: Program, scale: Scale) -> Numbers:
        wanted = peer_sync if program.name == "peer" else sync
        with tempfile.TemporaryDirectory(prefix="martlet-bench-js-") as directory:
            config = Path(directory, "server.conf")
            interval = f"sync_interval: {wanted}" if wanted else ""
            config.write_text(f"jetstream {{ store_dir: '{directory}'\n{interval} }}\n")
            with program.running(["-c", str(config)]) as server:
                settings = {"name": "B", "subjects": ["bench.js"], "storage": storage}
                answer = request(
                    server.port, "$JS.API.STREAM.CREATE.B", json.dumps(settings).encode()
                )
                if b'"error"' in answer:
                    raise BenchError(f"no stream: {answer.decode()}")
                return generate(
                    server,
                    "acked",
                    in_flight=in_flight,
                    size=128,
                    seconds=scale.seconds,
                    warmup=scale.warmup_s,
                )

    return run


def connections(program: Program, scale: Scale) -> Numbers:
    with program.running() as server:
        return generate(server, "connections", count=scale.connections, settle=scale.settle_s)


def subscriptions(program: Program, scale: Scale) -> Numbers:
    with program.running() as server:
        return generate(server, "subscriptions", count=scale.subscriptions, settle=scale.settle_s)


def idle(program: Program, scale: Scale) -> Numbers:
    with program.running() as server:
        time.sleep(scale.settle_s)
        started, before = time.monotonic(), server.cpu_s()
        time.sleep(scale.idle_s)
        busy = (server.cpu_s() - before) / (time.monotonic() - started)
        return {"rss_mb": server.rss_bytes() / 1e6, "cpu_percent": 100 * busy}


def ready(program: Program, scale: Scale) -> Numbers:
    times_ms: list[float] = []
    for _ in range(scale.starts):
        with program.running() as server:
            times_ms.append(1e3 * server.ready_s)
    return {"best_ms": min(times_ms), "median_ms": statistics.median(times_ms)}


@contextmanager
def attack(server: Server, kind: str, scale: Scale) -> Iterator[None]:
    """Misbehaving clients beside whatever the body does."""
    seconds = 2 * (scale.seconds + scale.warmup_s) + 1
    process = subprocess.Popen(
        [LOADGEN, "attack", *options(port=server.port, kind=kind, seconds=seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if process.stdout.readline() != "attacking\n":
            raise BenchError(f"the {kind} attack did not begin: {process.stderr.read().strip()}")
        yield
        if process.poll() is not None:
            raise BenchError(f"the {kind} attack ended early: {process.stderr.read().strip()}")
    finally:
        process.terminate()
        process.communicate()


def isolation(program: Program, scale: Scale) -> Numbers:
    """How much worse others' p99 gets: one requester and one responder, quiet and under attack.

    Each kind in turn, three times on one server; the medians are compared, not the luckiest.
    Alone: who throws garbage throws it at a port of its own, and the server never hears of it.
    """
    kinds = ("quiet", "slow", "deaf", "alone", "garbage")
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    with program.running() as server:
        for _ in range(ISOLATION_TURNS):
            for kind, p99s_us in found.items():
                with attack(server, kind, scale) if kind != "quiet" else nullcontext():
                    load = generate(server, "latency", seconds=scale.seconds, warmup=scale.warmup_s)
                p99s_us.append(load["p99_us"])
    p99_us = {kind: statistics.median(p99s_us) for kind, p99s_us in found.items()}
    numbers = {f"{kind}_p99_us": value for kind, value in p99_us.items()}
    numbers |= {f"{kind}_ratio": p99_us[kind] / p99_us["quiet"] for kind in p99_us}
    return numbers | {"garbage_heard_ratio": p99_us["garbage"] / p99_us["alone"]}


def permissions(program: Program, scale: Scale) -> Numbers:
    """What permissions cost: the same load with and without them, in turn; the best of each."""
    load = {"publishers": 1, "subscribers": 1, "subjects": 1, "size": 16}
    best = {"without": 0.0, "with": 0.0}
    with tempfile.TemporaryDirectory(prefix="martlet-bench-") as directory:
        config = Path(directory, "server.conf")
        config.write_text(PERMISSIONS)
        for _ in range(PERMISSION_TURNS):
            for which, arguments in (("without", []), ("with", ["-c", str(config)])):
                with program.running(arguments) as server:
                    found = generate(
                        server, "stream", seconds=scale.seconds, warmup=scale.warmup_s, **load
                    )
                best[which] = max(best[which], found["delivered_per_s"])
    return {"share": best["with"] / best["without"], **{f"{k}_per_s": v for k, v in best.items()}}
