"""Flows: what consumers deliver, step by step, told by one connection to one server.

A step returns what was heard, with ids and times masked, so that two servers can be compared. Where
the reference works behind its answers (acks without a reply, pulls), a step waits for what must
come or asks until the answer stands still; no step relies on the speed of the machine.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Protocol

from tests.differential.jetstream.client import until_removed
from tests.differential.jetstream.play import API, Ask, Publish, masked, parsed
from tests.e2e.server import ServerProcess

DEADLINE_S = 20.0
BARRIERS = 3
# An answer that was equal this often in a row stands still.
STILL = 3
STILL_PAUSE_S = 0.008
QUIET_S = 0.015
EARLY = 0.85
LATE_S = 5.0
ACK_TIME = re.compile(r"(\$JS\.ACK\.\S+\.)\d{19}(\.\d+\r)")
FLOW_CONTROL = re.compile(r"(\$JS\.FC\.[^.\s]+\.[^.\s]+\.)[0-9A-Za-z]+")
PIN = re.compile(r"(Nats-Pin-Id: )[0-9A-Za-z]{22}\r")
SEQUENCES = re.compile(r"\d+")
VOLATILE = {"id": "<id>", "pinned_client_id": "<pin>", "pinned_ts": "<time>", "pinned_id": "<pin>"}
ENDS = re.compile(rb"NATS/1.0 [45]")
HEARTBEAT = "100 Idle Heartbeat"


@dataclass(frozen=True)
class Heard:
    """One message as it came."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def is_heartbeat(self) -> bool:
        return HEARTBEAT.encode() in self.headers.partition(b"\r\n")[0]

    @property
    def is_end(self) -> bool:
        """Whether it is a status that ends a request."""
        return bool(ENDS.match(self.headers))

    @property
    def stream_seq(self) -> int:
        """From an ack subject; 0 where there is none."""
        tokens = self.reply.split(".")
        return int(tokens[-4]) if self.reply.startswith("$JS.ACK.") else 0

    def told(self) -> tuple[str, str, str, Any]:
        tokens = self.reply.split(".")
        if self.reply.startswith("$JS.ACK."):
            tokens[-2] = "<ts>" if SEQUENCES.fullmatch(tokens[-2]) else tokens[-2]
        reply = FLOW_CONTROL.sub(r"\1<id>", ".".join(tokens))
        return self.subject, reply, shown_headers(self.headers), shown(self.payload)


def shown_headers(headers: bytes) -> str:
    text = FLOW_CONTROL.sub(r"\1<id>", headers.decode("latin-1"))
    return ACK_TIME.sub(r"\1<ts>\2", PIN.sub("\\1<pin>\r", text))


def shown(payload: bytes) -> Any:
    """A payload; the JSON of an event or answer with its volatile values masked."""
    found = parsed(payload)
    return volatile(masked(found)) if isinstance(found, dict) else found


def volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: VOLATILE.get(key, volatile(item)) for key, item in value.items()}
    if isinstance(value, list):
        return [volatile(item) for item in value]
    return value


class Player:
    """One connection, its subscriptions by label, and what has come for each of them."""

    def __init__(self, server: ServerProcess) -> None:
        self._home = server.directory
        self._socket = socket.create_connection(("127.0.0.1", server.port), DEADLINE_S)
        self._buffer = b""
        self._labels: dict[str, str] = {}
        self._pongs = 0
        self._asked = 0
        self.queues: dict[str, list[Heard]] = defaultdict(list)
        self.replies: dict[int, str] = {}
        self.pins: list[str] = []
        self.since = time.monotonic()
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self._until(lambda: b"\r\n" in self._buffer, DEADLINE_S)
        self._buffer = self._buffer.partition(b"\r\n")[2]
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.subscribe("answers", "_R.>")
        self.barrier()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def subscribe(self, label: str, subject: str, queue: str = "") -> None:
        number = str(len(self._labels) + 1)
        self._labels[number] = label
        self.send(f"SUB {subject} {queue} {number}\r\n".encode())

    def unsubscribe(self, label: str) -> None:
        for number, name in self._labels.items():
            if name == label:
                self.send(f"UNSUB {number}\r\n".encode())

    def publish(self, subject: str, payload: bytes, headers: bytes = b"", reply: str = "") -> None:
        target = f"{subject} {reply}".strip()
        sizes = f"{len(headers)} {len(headers) + len(payload)}" if headers else str(len(payload))
        verb = "HPUB" if headers else "PUB"
        self.send(f"{verb} {target} {sizes}\r\n".encode() + headers + payload + b"\r\n")

    def request(self, subject: str, payload: bytes = b"", headers: bytes = b"") -> Heard | None:
        """The answer, or nothing when none has come in time."""
        self._asked += 1
        reply = f"_R.{self._asked}"
        self.publish(subject, payload, headers, reply)
        mine: list[Heard] = []

        def answered() -> bool:
            mine.extend(each for each in self.queues["answers"] if each.subject == reply)
            self.queues["answers"].clear()
            return bool(mine)

        self._until(answered, DEADLINE_S)
        if ".STREAM.DELETE." in subject:
            until_removed(self._home)
        return mine[0] if mine else None

    def barrier(self) -> None:
        wanted = self._pongs + 1
        self.send(b"PING\r\n")
        self._until(lambda: self._pongs >= wanted, DEADLINE_S)

    def wait(self, label: str, count: int, heartbeats: bool = False) -> list[Heard]:
        """The next `count` messages of a subscription; fewer when no more came in time."""

        def ready() -> list[Heard]:
            return [each for each in self.queues[label] if each.is_heartbeat == heartbeats]

        self._until(lambda: len(ready()) >= count, DEADLINE_S)
        found = ready()[:count]
        self.queues[label] = [each for each in self.queues[label] if each not in found]
        return found

    def read_for(self, seconds: float) -> None:
        self._until(lambda: False, seconds)

    def read_until_quiet(self) -> None:
        """Reads until nothing has come for a moment."""
        size = -1
        while size != (size := sum(len(queue) for queue in self.queues.values())):
            self.read_for(QUIET_S)
            self.barrier()

    def wait_end(self, label: str) -> list[Heard]:
        """The messages of a request up to the status that ends it."""
        self._until(lambda: any(each.is_end for each in self.queues[label]), DEADLINE_S)
        return [each for each in self.queues.pop(label, []) if not each.is_heartbeat]

    def rest(self) -> dict[str, list[Any]]:
        """Everything that nobody took, heartbeats left out."""
        left = {
            label: [each.told() for each in queue if not each.is_heartbeat]
            for label, queue in sorted(self.queues.items())
        }
        self.queues.clear()
        return {label: queue for label, queue in left.items() if queue}

    def _until(self, done: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                return
            if not data:
                raise AssertionError("the server closed the connection")
            self._buffer += data
            if not self._buffer.startswith(b"INFO"):
                self._consume()

    def _consume(self) -> None:
        while True:
            line, end, rest = self._buffer.partition(b"\r\n")
            if not end:
                return
            words = line.decode("latin-1").split(" ")
            if words[0] in ("MSG", "HMSG"):
                size = int(words[-1])
                if len(rest) < size + 2:
                    return
                self._hear(words, rest[:size])
                rest = rest[size + 2 :]
            elif words[0] == "PONG":
                self._pongs += 1
            elif words[0] == "PING":
                self.send(b"PONG\r\n")
            elif words[0] == "-ERR":
                raise AssertionError(line.decode())
            self._buffer = rest

    def _hear(self, words: list[str], data: bytes) -> None:
        has_headers = words[0] == "HMSG"
        head = int(words[-2]) if has_headers else 0
        reply = words[3] if len(words) == (6 if has_headers else 5) else ""
        heard = Heard(words[1], reply, data[:head], data[head:])
        if heard.stream_seq:
            self.replies[heard.stream_seq] = reply
        if pin := re.search(rb"Nats-Pin-Id: (\w+)", heard.headers):
            self.pins.append(pin[1].decode())
        self.queues[self._labels[words[2]]].append(heard)


class Step(Protocol):
    def play(self, player: Player) -> Any:
        """What was heard, masked."""


@dataclass(frozen=True)
class Flow:
    name: str
    steps: tuple[Any, ...]
    # Whether time passes in it: a busy machine may then need a second attempt.
    timed: bool = False


@dataclass(frozen=True)
class Sub:
    label: str
    subject: str
    queue: str = ""

    def play(self, player: Player) -> Any:
        player.subscribe(self.label, self.subject, self.queue)
        player.barrier()


@dataclass(frozen=True)
class Unsub:
    label: str

    def play(self, player: Player) -> Any:
        player.unsubscribe(self.label)
        player.barrier()


@dataclass(frozen=True)
class Pull:
    """A request whose messages come under `label`; `pin` sends the last pin id that was heard."""

    label: str
    body: Any = b""
    consumer: str = "C"
    pin: bool = False

    def play(self, player: Player) -> Any:
        player.subscribe(self.label, f"_P.{self.label}")
        body = self.body | {"id": player.pins[-1]} if self.pin else self.body
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        to = f"{API}CONSUMER.MSG.NEXT.S.{self.consumer}"
        player.publish(to, data, reply=f"_P.{self.label}")
        for _ in range(BARRIERS):
            player.barrier()
        player.since = time.monotonic()


@dataclass(frozen=True)
class Take:
    """The next messages of a label. `after_ms`: not before this much after the last ack or pull."""

    label: str
    count: int = 1
    after_ms: int = 0

    def play(self, player: Player) -> Any:
        found = player.wait(self.label, self.count)
        took_s = time.monotonic() - player.since
        told: list[Any] = [each.told() for each in found]
        if len(found) < self.count:
            told.append(f"no more than {len(found)} of {self.count}")
        early = took_s < EARLY * self.after_ms / 1000
        if self.after_ms and (early or took_s > LATE_S + self.after_ms / 1000):
            told.append(f"after {took_s:.3f} s")
        return told


@dataclass(frozen=True)
class Beat:
    """The next heartbeat of a label."""

    label: str

    def play(self, player: Player) -> Any:
        return [each.told() for each in player.wait(self.label, 1, heartbeats=True)]


@dataclass(frozen=True)
class Rest:
    """Whatever came and was not taken, after `ms` milliseconds."""

    ms: int = 0

    def play(self, player: Player) -> Any:
        player.read_for(self.ms / 1000)
        player.read_until_quiet()
        return player.rest()


@dataclass(frozen=True)
class Whole:
    """What comes for a request up to the status that ends it."""

    label: str

    def play(self, player: Player) -> Any:
        return [each.told() for each in player.wait_end(self.label)]


@dataclass(frozen=True)
class Ack:
    """Answers the last delivery of a stream sequence and waits for the answer's answer."""

    seq: int
    body: bytes = b"+ACK"

    def play(self, player: Player) -> Any:
        answer = player.request(player.replies[self.seq], self.body)
        player.since = time.monotonic()
        return None if answer is None else (shown_headers(answer.headers), answer.payload)


@dataclass(frozen=True)
class Forge:
    """An ack to a subject made from a real one: these of its tokens, counted from the end, differ.
    Whether it is answered is not told: the next step asks what it did."""

    seq: int
    tokens: tuple[tuple[int, str], ...] = ()
    body: bytes = b"+ACK"

    def play(self, player: Player) -> Any:
        parts = player.replies[self.seq].split(".")
        for at, text in self.tokens:
            parts[-at] = text
        player.publish(".".join(parts), self.body)
        player.barrier()


@dataclass(frozen=True)
class Next:
    """Acknowledges and asks for more in one: `+NXT` with what follows it."""

    seq: int
    label: str
    body: bytes = b""

    def play(self, player: Player) -> Any:
        player.subscribe(self.label, f"_P.{self.label}")
        player.publish(player.replies[self.seq], b"+NXT" + self.body, reply=f"_P.{self.label}")
        player.barrier()
        player.since = time.monotonic()


@dataclass(frozen=True)
class Live:
    """A message that comes while one listens, and time to deliver it before the next: what is left
    behind it is told with each."""

    message: Publish

    def play(self, player: Player) -> Any:
        stored = play_step(player, self.message)
        player.read_for(STILL_PAUSE_S)
        return stored


@dataclass(frozen=True)
class Still:
    """An answer of the API once it stands still."""

    subject: str

    def play(self, player: Player) -> Any:
        last: Any = None
        same = 0
        deadline = time.monotonic() + DEADLINE_S
        while same < STILL and time.monotonic() < deadline:
            heard = player.request(API + self.subject)
            told = heard and shown(heard.payload)
            same = same + 1 if told == last else 0
            last = told
            player.read_for(STILL_PAUSE_S)
        return last


@dataclass(frozen=True)
class Until:
    """Asks until a value in the answer is this one; a path of keys."""

    subject: str
    path: tuple[str, ...]
    value: Any

    def play(self, player: Player) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            heard = player.request(API + self.subject)
            found: Any = json.loads(heard.payload) if heard else {}
            for key in self.path:
                found = found.get(key, {}) if isinstance(found, dict) else {}
            if found == self.value or time.monotonic() > deadline:
                return heard and shown(heard.payload)
            player.read_for(STILL_PAUSE_S)


def play_flow(server: ServerProcess, flow: Flow) -> list[Any]:
    player = Player(server)
    try:
        remove_streams(player)
        told = [play_step(player, step) for step in flow.steps]
        told.append(Rest().play(player))
        remove_streams(player)
        return told
    finally:
        player.close()


def play_step(player: Player, step: Any) -> Any:
    if isinstance(step, Ask):
        body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
        heard = player.request(API + step.subject, body, step.headers)
        player.since = time.monotonic()
        return heard and (heard.headers.decode(), shown(heard.payload))
    if isinstance(step, Publish):
        heard = player.request(step.subject, step.payload, step.headers)
        return heard and shown(heard.payload)
    return step.play(player)


def remove_streams(player: Player) -> None:
    heard = player.request(f"{API}STREAM.NAMES")
    assert heard is not None
    for name in json.loads(heard.payload)["streams"] or ():
        player.request(f"{API}STREAM.DELETE.{name}")
