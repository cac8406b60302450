"""JetStream with very many streams: making them, listing them, publishing to them."""

import json
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.loads import Numbers, Run, Scale, generate, request
from bench.programs import BenchError, Program, Server

IN_FLIGHT = 256
LIST_LIMIT = 256
PAYLOAD_BYTES = 128


@contextmanager
def running(program: Program, settings: str = "") -> Iterator[Server]:
    """A server with JetStream in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="martlet-bench-js-") as directory:
        config = Path(directory, "server.conf")
        config.write_text(f"jetstream {{ store_dir: '{directory}'\n{settings} }}\n")
        with program.running(["-c", str(config)]) as server:
            yield server


class Requests:
    """API requests over one connection, many in flight; answers come in any order."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.lines = self.socket.makefile("rb")
        self.socket.sendall(b'CONNECT {"verbose":false}\r\nSUB _INBOX.many 1\r\n')

    def send(self, requests: list[tuple[str, bytes]]) -> None:
        self.socket.sendall(
            b"".join(
                f"PUB {subject} _INBOX.many {len(body)}\r\n".encode() + body + b"\r\n"
                for subject, body in requests
            )
        )

    def answer(self) -> bytes:
        for line in self.lines:
            if line.startswith(b"MSG "):
                return self.lines.read(int(line.split()[-1]) + 2)
            if line.startswith(b"-ERR"):
                raise BenchError(line.decode().strip())
        raise BenchError("the server closed the connection")

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


def make_streams(server: Server, count: int, storage: str) -> float:
    """Streams S<i> on bench.paced.<i>; how many seconds they took."""
    asked = [
        (f"$JS.API.STREAM.CREATE.S{number}", json.dumps(stream(number, storage)).encode())
        for number in range(count)
    ]
    requests = Requests(server.port)
    started = time.monotonic()
    requests.send(asked[:IN_FLIGHT])
    for at in range(count):
        answer = requests.answer()
        if b'"error"' in answer:
            raise BenchError(f"no stream: {answer.decode()}")
        if at + IN_FLIGHT < count:
            requests.send([asked[at + IN_FLIGHT]])
    seconds = time.monotonic() - started
    requests.close()
    return seconds


def stream(number: int, storage: str) -> dict[str, object]:
    return {"name": f"S{number}", "subjects": [f"bench.paced.{number}"], "storage": storage}


def many_streams(storage: str) -> Run:
    """Makes streams, then lists them all while one publisher waits for each ack."""

    def run(program: Program, scale: Scale) -> Numbers:
        count = 10 * scale.connections
        with running(program) as server:
            numbers = {"create_s": make_streams(server, count, storage)}
            numbers["rss_mb"] = server.rss_bytes() / 1e6
            settings = {"name": "B", "subjects": ["bench.js"], "storage": storage}
            answer = request(server.port, "$JS.API.STREAM.CREATE.B", json.dumps(settings).encode())
            if b'"error"' in answer:
                raise BenchError(f"no stream: {answer.decode()}")
            load = {"in_flight": 1, "size": PAYLOAD_BYTES, "seconds": scale.seconds}
            quiet = generate(server, "acked", warmup=scale.warmup_s, **load)
            with listing(server, count) as pages_ms:
                busy = generate(server, "acked", warmup=scale.warmup_s, **load)
            numbers["quiet_p99_us"], numbers["listed_p99_us"] = quiet["p99_us"], busy["p99_us"]
            numbers["p99_ratio"] = busy["p99_us"] / quiet["p99_us"]
            numbers["page_median_ms"] = statistics.median(pages_ms)
            numbers["page_max_ms"] = max(pages_ms)
            return numbers

    return run


@contextmanager
def listing(server: Server, count: int) -> Iterator[list[float]]:
    """Asks for one page of STREAM.LIST after the other beside what the body does."""
    pages_ms: list[float] = []
    over = threading.Event()

    def ask() -> None:
        requests = Requests(server.port)
        offset = 0
        while not over.is_set() or not pages_ms:
            started = time.monotonic()
            requests.send([("$JS.API.STREAM.LIST", b'{"offset":%d}' % offset)])
            requests.answer()
            pages_ms.append(1e3 * (time.monotonic() - started))
            offset = offset + LIST_LIMIT if offset + LIST_LIMIT < count else 0
        requests.close()

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        yield pages_ms
    finally:
        over.set()
        asker.join()


SETTLED_S, CYCLES_S = 20.0, 13.0
"""What is done once for each stream (its first blocks, two checkpoints' files) is over after 15 s.
From then on each has a checkpoint every 6.5 s and a block every 15."""


def fleet(storage: str, acked: bool) -> Run:
    """Each stream has one publisher that publishes 100 messages a second, for some time already."""

    def run(program: Program, scale: Scale) -> Numbers:
        more: dict[str, object] = {"acks": True} if acked else {}
        if storage == "file" and scale.seconds > 1:
            more.update(warmup=SETTLED_S, seconds=CYCLES_S)
        with running(program) as server:
            make_streams(server, fleet_size(scale), storage)
            return paced(server, scale, **more)

    return run


def bare_fleet(program: Program, scale: Scale) -> Numbers:
    """The same connections and messages without streams: each publisher hears its own messages."""
    with program.running() as server:
        return paced(server, scale, heard=True)


def fleet_size(scale: Scale) -> int:
    return max(scale.connections // 10, 1)


def paced(server: Server, scale: Scale, **wanted: object) -> Numbers:
    return generate(
        server,
        "paced",
        publishers=fleet_size(scale),
        rate=100,
        size=PAYLOAD_BYTES,
        **{"seconds": scale.seconds, "warmup": 2 * scale.warmup_s, **wanted},
    )
