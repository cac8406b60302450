"""A whole JetStream engine over memory: requests in, answers out, a clock that tests move."""

from __future__ import annotations

import json
from typing import Any

from config.options import Options
from server.jetstream._commit import LocalCommit
from server.jetstream.api.dispatch import Api
from server.jetstream.engine import Engine
from server.jetstream.ingest import Ingests
from server.jetstream.stores import MemoryStores
from server.jetstream.stream import Stream
from storage.ports import StoredMessage
from tests.unit.memory_client import MODERN, World

MAX_PAYLOAD = 1 << 20


class StillClock:
    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic_ns(self) -> int:
        return self._world.now_ns

    def wall_ns(self) -> int:
        return self._world.now_ns


class CountingRandom:
    """Numbers that are never the same twice."""

    def __init__(self) -> None:
        self._count = 0

    def below(self, bound: int) -> int:
        self._count += 1
        return self._count % bound

    def token_bytes(self, size: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(size, "big")


class EngineWorld:
    """One server with JetStream in memory and one client."""

    def __init__(self, options: Options | None = None) -> None:
        self.world = World()
        self.warnings: list[str] = []
        commit = LocalCommit(self.world.broker.turn)
        self.ingests = Ingests(commit, MAX_PAYLOAD)
        self.engine = Engine(
            self.world.broker,
            options or Options(),
            server_name="test",
            clock=StillClock(self.world),
            random=CountingRandom(),
            stores=MemoryStores(),
            open_ingest=self.ingests.open,
            warn=self.warnings.append,
        )
        self.api = Api(self.engine)
        self.api.listen()
        self.client = self.world.client(MODERN)
        self.client.say(b"SUB r.> 1\r\n")
        self.seen = b""
        """What else came to the client while it waited for an answer."""

    def ask(self, subject: str, body: Any = b"") -> dict[str, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        said = self.client.say(
            b"PUB $JS.API.%b r.1 %d\r\n%b\r\n" % (subject.encode(), len(data), data)
        )
        self.run()
        said += self.client.take()
        start = said.index(b"MSG r.1 ")
        head, rest = said[start:].split(b"\r\n", 1)
        size = int(head.split()[-1])
        self.seen += said[:start] + rest[size + 2 :]
        answer: dict[str, Any] = json.loads(rest[:size])
        return answer

    def request(self, subject: str, payload: bytes) -> bytes:
        """The payload of the answer."""
        said = self.client.say(
            b"PUB %b r.2 %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)
        )
        self.run()
        said += self.client.take()
        start = said.index(b"MSG r.2 ")
        head, rest = said[start:].split(b"\r\n", 1)
        return rest[: int(head.split()[-1])]

    def create(self, name: str, **config: Any) -> Stream:
        config = {"name": name, "storage": "memory", **config}
        answer = self.ask(f"STREAM.CREATE.{name}", config)
        assert "error" not in answer, answer
        return self.stream(name)

    def update(self, name: str, **config: Any) -> None:
        config = {"name": name, "storage": "memory", **config}
        answer = self.ask(f"STREAM.UPDATE.{name}", config)
        assert "error" not in answer, answer

    def stream(self, name: str) -> Stream:
        return self.engine.accounts["$G"].streams[name]

    def info(self, name: str) -> dict[str, Any]:
        return self.ask(f"STREAM.INFO.{name}")

    def publish(self, subject: str, payload: bytes = b"x", *fields: str) -> None:
        block = "\r\n".join(["NATS/1.0", *fields, "", ""]).encode() if fields else b""
        sizes = f"{len(block)} {len(block) + len(payload)}" if fields else f"{len(payload)}"
        verb = "HPUB" if fields else "PUB"
        line = f"{verb} {subject} {sizes}\r\n".encode()
        self.seen += self.client.say(line + block + payload + b"\r\n")

    def run(self, turns: int = 4) -> None:
        for _ in range(turns):
            self.world.broker.turn.run()

    def pass_time(self, seconds: float) -> None:
        """In ticks as the process has them."""
        end_ns = self.world.now_ns + int(seconds * 1e9)
        while self.world.now_ns < end_ns:
            self.world.now_ns = min(self.world.now_ns + 100_000_000, end_ns)
            while self.ingests.timers.run(self.world.now_ns):
                pass
            self.engine.timers.run(self.world.now_ns)
            self.engine.hub.run_timers()
            self.run(1)

    def messages(self, name: str) -> list[StoredMessage]:
        store, found = self.stream(name).store, []
        message = store.load_next(1)
        while message is not None:
            found.append(message)
            message = store.load_next(message.seq + 1)
        return found
