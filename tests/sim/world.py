"""One server with JetStream in this process, over memory or a directory, with a clock that tests
move, and one client that hears bytes. A restart builds it anew from what the directory has."""

from __future__ import annotations

import json
import select
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.options import Options
from server.jetstream._commit import LocalCommit
from server.jetstream.api.dispatch import Api
from server.jetstream.consumer import Consumer
from server.jetstream.diskstores import DiskStores
from server.jetstream.engine import Engine
from server.jetstream.ingest import Ingests
from server.jetstream.stores import MemoryStores
from server.jetstream.stream import Stream
from tests.unit.jetstream.engine_world import MAX_PAYLOAD, CountingRandom, StillClock
from tests.unit.memory_client import MODERN, World

DISK_WAIT_MS = 5_000
TURNS = 3
TICK_NS = 10_000_000


@dataclass(frozen=True)
class Heard:
    label: str
    subject: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def place(self) -> tuple[str, int] | None:
        """Consumer and stream sequence, of a message that a consumer delivered."""
        tokens = self.reply.split(".")
        return (tokens[3], int(tokens[5])) if self.reply.startswith("$JS.ACK.") else None


def heard_in(data: bytes, labels: dict[bytes, str]) -> Iterator[Heard]:
    """The messages of what a client was told."""
    while data:
        line, _, rest = data.partition(b"\r\n")
        words = line.split(b" ")
        if words[0] not in (b"MSG", b"HMSG"):
            data = rest
            continue
        size = int(words[-1])
        has_headers = words[0] == b"HMSG"
        head = int(words[-2]) if has_headers else 0
        reply = words[3].decode() if len(words) == (6 if has_headers else 5) else ""
        yield Heard(labels[words[2]], words[1].decode(), reply, rest[:head], rest[head:size])
        data = rest[size + 2 :]


class SimWorld:
    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._now_ns = 0
        self.warnings: list[str] = []
        # What the client hears is thrown away.
        self.is_deaf = False
        self._start()

    def _start(self) -> None:
        self.world = World()
        self.world.now_ns = max(self.world.now_ns, self._now_ns)
        turn = self.world.broker.turn
        self._disk = None if self._directory is None else DiskStores(self._directory, durable=True)
        if self._disk is None:
            self._commit = LocalCommit(turn)
        else:
            self._commit = LocalCommit(turn, self._disk.directory, lambda *text: self._warn(*text))
            self._disk.book.attach(self._commit)
        self._ingests = Ingests(self._commit, MAX_PAYLOAD)
        self.engine = Engine(
            self.world.broker,
            Options(),
            server_name="sim",
            clock=StillClock(self.world),
            random=CountingRandom(),
            stores=self._disk or MemoryStores(),
            open_ingest=self._ingests.open,
            warn=lambda text: self._warn("warn", text),
            when_settled=self._commit.when_settled,
        )
        self._api = Api(self.engine)
        self.engine.recover()
        self._api.listen()
        self._client = self.world.client(MODERN)
        self._labels: dict[bytes, str] = {}
        self._numbers: dict[str, int] = {}
        self.queues: dict[str, list[Heard]] = defaultdict(list)
        self.listen("answers", "r.>")

    def _warn(self, level: str, text: str) -> None:
        self.warnings.append(text)

    def close(self, is_kill: bool = False) -> None:
        self._api.close()
        if not is_kill:
            self.engine.close()
            self.settle()
        if self._disk is not None:
            self._disk.close()

    def restart(self, is_kill: bool) -> None:
        self.close(is_kill)
        self._now_ns = self.world.now_ns
        self._start()

    # The client

    def listen(self, label: str, subject: str, queue: str = "") -> None:
        number = len(self._labels) + 1
        self._labels[str(number).encode()] = label
        self._numbers[label] = number
        self._say(f"SUB {subject} {queue} {number}\r\n".encode())

    def unlisten(self, label: str) -> None:
        if label in self._numbers:
            self._say(f"UNSUB {self._numbers.pop(label)}\r\n".encode())

    def publish(self, subject: str, payload: bytes = b"", reply: str = "", head: str = "") -> None:
        block = head.encode()
        sizes = f"{len(block)} {len(block) + len(payload)}" if block else str(len(payload))
        verb = "HPUB" if block else "PUB"
        line = f"{verb} {subject} {reply} {sizes}\r\n".replace("  ", " ").encode()
        self._say(line + block + payload + b"\r\n")

    def ask(self, subject: str, body: Any = b"") -> dict[str, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.publish(f"$JS.API.{subject}", data, reply="r.1")
        self.settle()
        found = self.queues.pop("answers")
        answer: dict[str, Any] = json.loads(found[-1].payload)
        return answer

    def say_many(self, lines: bytes) -> None:
        """Protocol lines of many messages."""
        self._say(lines)
        self.world.broker.turn.run()

    def _say(self, data: bytes) -> None:
        self._sort(self._client.say(data))

    def _sort(self, data: bytes) -> None:
        if self.is_deaf:
            return
        for heard in heard_in(data, self._labels):
            self.queues[heard.label].append(heard)

    # Turns and time

    def settle(self) -> None:
        """Turns until everything that was written is durable and told."""
        for _ in range(TURNS):
            self.world.broker.turn.run()
            if self._disk is not None:
                self._wait_for_disk()
        self._sort(self._client.take())

    def _wait_for_disk(self) -> None:
        assert self._disk is not None
        directory = self._disk.directory
        ticket = directory.commit()
        ready = select.poll()
        for descriptor in (directory.log_event_fd, directory.block_event_fd):
            ready.register(descriptor, select.POLLIN)
        while directory.settled_ticket < ticket:
            assert ready.poll(DISK_WAIT_MS), "the disk does not answer"
            self._commit.completed()
        self._commit.completed()

    def pass_time(self, seconds: float) -> None:
        """As the process does: the loop wakes for what is due."""
        world = self.world
        end_ns = world.now_ns + int(seconds * 1e9)
        while world.now_ns < end_ns:
            world.now_ns = min(world.now_ns + TICK_NS, end_ns)
            self._ingests.timers.run(world.now_ns)
            self.engine.timers.run(world.now_ns)
            self.engine.hub.run_timers()
            self.engine.hub.keep_soon()
            world.broker.turn.run()
        self.settle()

    # What there is

    def stream(self, name: str = "S") -> Stream:
        return self.engine.accounts["$G"].streams[name]

    def consumers(self, name: str = "S") -> dict[str, Consumer]:
        return self.stream(name).consumers
