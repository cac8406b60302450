"""JetStream consumers: fetched, pushed in order, a bucket's watch, and very many at once."""

import json
import socket
import statistics
import threading
import time
from contextlib import closing

from bench.jetstream import PAYLOAD_BYTES, Requests, running
from bench.loads import Numbers, Run, Scale, generate, request
from bench.programs import BenchError, Program, Server

MESSAGES_A_SECOND = 150_000  # of a measurement's seconds: how many are in the stream
BURST = 1000
BATCH = 500
KEYS_SHARE = 10  # a bucket's keys are this part of the messages
MANY_SECONDS = 6
STEPS_A_SECOND = 50
CONSUMERS_AT_ONCE = 200


def ask(server: Server, subject: str, body: dict[str, object]) -> dict[str, object]:
    answer: dict[str, object] = json.loads(
        request(server.port, f"$JS.API.{subject}", json.dumps(body).encode())
    )
    if "error" in answer:
        raise BenchError(f"{subject}: {answer['error']}")
    return answer


def messages_of(server: Server) -> int:
    state = ask(server, "STREAM.INFO.B", {})["state"]
    assert isinstance(state, dict)
    return int(state["messages"])


def fill(server: Server, count: int, keys: int) -> None:
    """A stream B with so many messages, each on one of `keys` subjects; a few are under way."""
    settings = {"name": "B", "subjects": ["b.>"], "storage": "memory", "max_msgs_per_subject": -1}
    ask(server, "STREAM.CREATE.B", settings)
    payload = b"x" * PAYLOAD_BYTES
    with closing(socket.create_connection(("127.0.0.1", server.port))) as publisher:
        publisher.sendall(b'CONNECT {"verbose":false}\r\n')
        for first in range(0, count, BURST):
            numbers = range(first, min(first + BURST, count))
            lines = (b"PUB b.%d %d\r\n%b\r\n" % (n % keys, PAYLOAD_BYTES, payload) for n in numbers)
            publisher.sendall(b"".join(lines))
            if first % (20 * BURST) == 0:
                wait_for(server, first)
        wait_for(server, count)


def wait_for(server: Server, count: int) -> None:
    deadline = time.monotonic() + 30
    while messages_of(server) < count:
        if time.monotonic() > deadline:
            raise BenchError(f"{messages_of(server)} of {count} messages were stored")
        time.sleep(0.005)


def fetched(*, acks: bool) -> Run:
    """Batches of 500, one request under way; with acks each message is acknowledged."""

    def run(program: Program, scale: Scale) -> Numbers:
        count = int(MESSAGES_A_SECOND * scale.seconds)
        with running(program) as server:
            fill(server, count, 1)
            config: dict[str, object] = {"durable_name": "P", "ack_policy": "none"}
            if acks:
                config |= {"ack_policy": "explicit", "max_ack_pending": -1}
            body: dict[str, object] = {"stream_name": "B", "config": config}
            ask(server, "CONSUMER.DURABLE.CREATE.B.P", body)
            given = {"acks": True} if acks else {}
            return generate(server, "fetch", count=count, batch=BATCH, **given)

    return run


def ordered(program: Program, scale: Scale) -> Numbers:
    """Pushed with flow control, without acks, as to the ordered consumer of a client library."""
    count = int(MESSAGES_A_SECOND * scale.seconds)
    with running(program) as server:
        fill(server, count, 1)
        return generate(server, "fetch", count=count, batch=0)


def watched(program: Program, scale: Scale) -> Numbers:
    """The last value of each key, in order: what a watch of a whole bucket begins with."""
    count = int(MESSAGES_A_SECOND * scale.seconds)
    keys = max(count // KEYS_SHARE, 1)
    with running(program) as server:
        fill(server, count, keys)
        return generate(server, "fetch", count=keys, batch=0, last_per_subject=True)


def delivered(program: Program, scale: Scale) -> Numbers:
    """One message under way, from its publish to its delivery; both sync before they show it."""
    always = "sync_interval: always" if program.name == "peer" else ""
    with running(program, always) as server:
        ask(server, "STREAM.CREATE.B", {"name": "B", "subjects": ["bench.js"]})
        config = {"durable_name": "P", "ack_policy": "none"}
        ask(server, "CONSUMER.DURABLE.CREATE.B.P", {"stream_name": "B", "config": config})
        return generate(
            server,
            "delivered",
            size=PAYLOAD_BYTES,
            seconds=scale.seconds,
            warmup=scale.warmup_s,
        )


def many(program: Program, scale: Scale) -> Numbers:
    """Durable consumers with a filter each; then one message a second to each, acknowledged."""
    count = scale.connections
    with running(program) as server:
        settings = {"name": "B", "subjects": ["b.>"], "max_msgs": 20 * count}
        ask(server, "STREAM.CREATE.B", settings)
        numbers = make_consumers(server, count)
        with closing(socket.create_connection(("127.0.0.1", server.port))) as client:
            client.sendall(b'CONNECT {"verbose":false}\r\nSUB d 1\r\n')
            body = b'{"batch":1000}'
            for number in range(count):
                line = b"PUB $JS.API.CONSUMER.MSG.NEXT.B.c%d d %d\r\n%b\r\n"
                client.sendall(line % (number, len(body), body))
            taken: list[int] = []
            taker = threading.Thread(target=take, args=(client, taken, MANY_SECONDS * count))
            taker.start()
            time.sleep(scale.settle_s)
            started, before = time.monotonic(), server.cpu_s()
            publish_paced(server, count, started)
            spent, passed = server.cpu_s() - before, time.monotonic() - started
            taker.join(30)
            if taker.is_alive():
                raise BenchError(f"{sum(taken)} of {MANY_SECONDS * count} messages came")
        return numbers | {"cpu_percent": 100 * spent / passed}


def make_consumers(server: Server, count: int) -> Numbers:
    """Many under way at once; then some one by one."""

    def body(name: str, number: int) -> tuple[str, bytes]:
        subject = f"b.{number}"
        config = {"durable_name": name, "name": name, "ack_policy": "explicit"}
        asked = {"stream_name": "B", "config": config | {"filter_subject": subject}}
        return f"$JS.API.CONSUMER.CREATE.B.{name}.{subject}", json.dumps(asked).encode()

    requests = Requests(server.port)
    with closing(requests):
        started = time.monotonic()
        for first in range(0, count, CONSUMERS_AT_ONCE):
            numbers = range(first, min(first + CONSUMERS_AT_ONCE, count))
            requests.send([body(f"c{number}", number) for number in numbers])
            if any(b'"error"' in requests.answer() for _ in numbers):
                raise BenchError("a consumer was not made")
        took_s = time.monotonic() - started
        times_ms = []
        for number in range(50):
            began = time.monotonic()
            requests.send([body(f"x{number}", count + number)])
            requests.answer()
            times_ms.append(1e3 * (time.monotonic() - began))
    return {"create_s": took_s, "create_p50_ms": statistics.median(times_ms)}


def take(client: socket.socket, taken: list[int], wanted: int) -> None:
    """Acknowledges what comes."""
    unread, count = b"", 0
    while count < wanted:
        data = client.recv(1 << 20)
        if not data:
            return
        *lines, unread = (unread + data).split(b"\r\n")
        replies = [line.split(b" ")[3] for line in lines if line.startswith(b"MSG b.")]
        count += len(replies)
        taken.append(len(replies))
        if replies:
            client.sendall(b"".join(b"PUB %b 0\r\n\r\n" % reply for reply in replies))


def publish_paced(server: Server, count: int, started: float) -> None:
    with closing(socket.create_connection(("127.0.0.1", server.port))) as publisher:
        publisher.sendall(b'CONNECT {"verbose":false}\r\n')
        step, sent = max(count // STEPS_A_SECOND, 1), 0
        while sent < MANY_SECONDS * count:
            numbers = range(sent, min(sent + step, MANY_SECONDS * count))
            publisher.sendall(b"".join(b"PUB b.%d 5\r\nhello\r\n" % (n % count) for n in numbers))
            sent += len(numbers)
            time.sleep(max(started + sent / count - time.monotonic(), 0))
