"""Clients over nothing but memory: bytes in, bytes out, a clock that tests move."""

from __future__ import annotations

from server.core._broker import Broker
from server.core._client import Client
from server.core.hooks import Hooks, NoHooks

SECOND_NS = 1_000_000_000
QUIET = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
MODERN = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
    b'"protocol":1}\r\n'
)


class RecordingHooks(NoHooks):
    """Accepts everybody; remembers closes and log lines."""

    def __init__(self) -> None:
        self.closed: list[tuple[int, str]] = []
        self.lines: list[tuple[str, str]] = []

    def on_closed(self, client: Client, reason: str) -> None:
        self.closed.append((client.cid, reason))

    def log(self, level: str, text: str, client: Client | None = None) -> None:
        self.lines.append((level, text))


class World:
    """A broker whose time stands still until `pass_time`."""

    def __init__(self, hooks: Hooks | None = None) -> None:
        self.now_ns = 1_000 * SECOND_NS
        self.hooks = RecordingHooks() if hooks is None else hooks
        self.broker = Broker(self.hooks, lambda: self.now_ns, lambda: self.now_ns, seed=1)

    def pass_time(self, seconds: float) -> None:
        """In small ticks, as the server does."""
        end_ns = self.now_ns + int(seconds * SECOND_NS)
        while self.now_ns < end_ns:
            self.now_ns = min(self.now_ns + SECOND_NS // 10, end_ns)
            self.broker.tick(self.now_ns)
            self.broker.turn.run()

    def client(self, connect: bytes = b"") -> MemoryClient:
        return MemoryClient(self, connect)


class MemoryClient:
    """What a peer sees of its connection."""

    def __init__(self, world: World, connect: bytes = b"") -> None:
        self.world = world
        self.output: list[bytes] = []
        self.transport_closed = False
        self.paused = False
        self.held = 0
        self.server_side = Client(
            world.broker,
            self.output.append,
            self._close,
            "127.0.0.1",
            4000,
            pause_transport=self._pause,
            transport_pending=lambda: self.held,
        )
        self.server_side.start()
        world.broker.turn.run()
        self.info = self.take()
        if connect:
            assert self.say(connect + b"PING\r\n").endswith(b"PONG\r\n")

    def _close(self) -> None:
        self.transport_closed = True

    def _pause(self, paused: bool) -> None:
        self.paused = paused

    def take(self) -> bytes:
        """What came since the last time."""
        said = b"".join(self.output)
        self.output.clear()
        return said

    def say(self, data: bytes) -> bytes:
        """Send, end the turn, and return the answer."""
        self.server_side.feed(data)
        self.world.broker.turn.run()
        return self.take()

    @property
    def reason(self) -> str:
        return self.server_side.reason
