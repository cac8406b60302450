"""What a fuzzer's bytes do: they arrive at a client that is wired to a broker in memory.

Byte 0 chooses the server's settings, byte 1 how the rest is cut into reads; the rest is what the
client sends. Checked: every answer is protocol, nothing is left behind after the close (no C memory
either: the leak detector cannot see it among Python's own), and cutting the same bytes otherwise
changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from server.core._broker import Broker
from server.core._client import Client
from server.core._mappings import Mappings
from server.core._outbox import live_buffers
from server.core._permissions import Permissions
from server.core._subs import live_structures
from server.core.hooks import NoHooks
from server.net.proxyheader import read_header

if TYPE_CHECKING:
    from server.core._peer import Preface

FIXED_NS = 1_000_000_000
RANDOM_STATE = 7
SETTINGS_MASK = 255
WHOLE, BYTEWISE = 0, 1
PERMITTED = Permissions(
    pub_allow=["a.>", "b", "*.c", "inbox.*"],
    pub_deny=["a.no", "*.d.>"],
    sub_allow=["a.>", "b q.*", "inbox.>", ">"],
    sub_deny=["a.secret", "a.*.secret", "x q"],
    responses_max=2,
    responses_expires_ns=FIXED_NS,
)


class Settings:
    """One bit each, so that a fuzzer can find its way."""

    def __init__(self, bits: int) -> None:
        self.small_limits = bool(bits & 1)
        self.permissions = bool(bits & 2)
        self.auth_required = bool(bits & 4)
        self.no_headers = bool(bits & 8)
        self.trace = bool(bits & 16)
        self.listener_verbose = bool(bits & 32)
        self.mapped = bool(bits & 64)
        self.proxied = bool(bits & 128)


class FuzzHooks(NoHooks):
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.problems: list[str] = []

    def on_connect(self, client: Client) -> None:
        permissions = PERMITTED if self.settings.permissions else None
        if client.options.user == "reject":
            client.reject()
        else:
            client.accept(client.broker.default_account, permissions=permissions)

    def on_missing_connect(self, client: Client) -> bool:
        return False

    def log(self, level: str, text: str, client: Client | None = None) -> None:
        if text.startswith("Internal error"):
            self.problems.append(text)


@cache
def broker_with(bits: int) -> Broker:
    """One for each choice of settings: a broker is made to live as long as its process."""
    settings = Settings(bits)
    broker = Broker(FuzzHooks(settings), clock_ns=fixed_clock, wall_ns=fixed_clock)
    broker.headers = not settings.no_headers
    broker.auth_required = settings.auth_required
    broker.trace = settings.trace
    if settings.mapped:
        broker.default_account.mappings = mappings()
    if settings.small_limits:
        broker.max_control_line = 64
        broker.max_payload = 48
        broker.max_subs = 3
        broker.max_sub_tokens = 4
    return broker


def mappings() -> Mappings:
    """All kinds: a text, tokens, parts in Python, shares of chance, a loss, an endless one."""
    made = Mappings(lambda count: count - 1)
    made.add("a.b", {"": [("b", 40), ("c.d", 30)]})
    made.add("a.*", {"": [("x.{{partition(3,1)}}.$1", 100)]})
    made.add("*.c", {"": [("{{splitFromLeft(1,1)}}.{{random(9)}}", 50)]})
    made.add("lost", {"": [("lost", 0)]})
    made.add("b.>", {"": [("deeper.and.deeper.>", 100)]})
    return made


def fixed_clock() -> int:
    return FIXED_NS


def pieces(data: bytes, cut: int) -> Iterator[bytes]:
    """0: whole, 1: byte by byte, else pseudo-random pieces of which `cut` is the seed."""
    if cut == WHOLE:
        yield data
        return
    state = cut * 2654435761 & 0xFFFFFFFF
    at = 0
    while at < len(data):
        size = 1
        if cut != BYTEWISE:
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF
            size = 1 + (state >> 16) % (1 << (cut % 10))
        yield data[at : at + size]
        at += size


def connect(
    broker: Broker, write: Callable[[bytes], object], preface: Preface | None = None
) -> Client:
    client = Client(broker, write=write, close_transport=nothing, ip="127.0.0.1", port=1)
    if preface is not None:
        client.expect_preface(preface, FIXED_NS)
    client.start()
    broker.turn.run()
    return client


def nothing() -> None:
    """There is no transport to close."""


def answers(data: bytes, bits: int, cut: int) -> tuple[bytes, bytes, bool]:
    """What the sender and a listener on everything are told, and whether the sender was closed."""
    broker = broker_with(bits)
    before = live_memory()
    told = converse(broker, data, bits, cut)
    check_nothing_left(broker)
    assert live_memory() == before, f"C memory is left: {before}, now {live_memory()}"
    return told


def live_memory() -> tuple[object, ...]:
    """How many blocks, chunks, subscriptions and sets of them there are."""
    return live_buffers(), live_structures()


def converse(broker: Broker, data: bytes, bits: int, cut: int) -> tuple[bytes, bytes, bool]:
    """All of the two connections goes with the last reference, when this returns."""
    broker.random = RANDOM_STATE
    told: list[bytes] = []
    heard: list[bytes] = []
    listener = connect(broker, heard.append)
    verbose = b"true" if Settings(bits).listener_verbose else b"false"
    listener.feed(b'CONNECT {"verbose":%s,"headers":true}\r\nSUB > 1\r\nSUB a.* q 2\r\n' % verbose)
    preface = read_header if Settings(bits).proxied else None
    sender = connect(broker, told.append, preface)
    told.clear()
    heard.clear()
    for piece in pieces(data, cut):
        alive = sender.feed(bytes(piece))
        broker.turn.run()
        if not alive:
            break
    closed = sender.closed
    sender.close("Client Closed")
    listener.close("Client Closed")
    broker.turn.run()
    return b"".join(told), b"".join(heard), closed


def check_nothing_left(broker: Broker) -> None:
    assert not broker.clients, "a closed client is still registered"
    account = broker.default_account
    assert account.subscriptions == 0, f"{account.subscriptions} subscriptions left"
    assert account.connections == 0, f"{account.connections} connections left"
    assert not broker.hooks.problems, broker.hooks.problems


def check_is_protocol(stream: bytes) -> None:
    """Whole lines of the server's verbs, each MSG and HMSG with its payload."""
    at = 0
    while at < len(stream):
        end = stream.index(b"\r\n", at) + 2
        line = stream[at:end]
        verb = line.split(None, 1)[0]
        assert verb in {b"INFO", b"MSG", b"HMSG", b"+OK", b"-ERR", b"PONG", b"PING"}, line
        if verb in {b"MSG", b"HMSG"}:
            end += int(line.split()[-1]) + 2
            assert stream[end - 2 : end] == b"\r\n", line
        at = end


def run(data: bytes) -> None:
    """One input; raises AssertionError when an invariant is broken."""
    if len(data) < 2:
        return
    bits = data[0] & SETTINGS_MASK
    stream = data[2:]
    whole = answers(stream, bits, WHOLE)
    check_is_protocol(whole[0])
    check_is_protocol(whole[1])
    cut = answers(stream, bits, data[1] or BYTEWISE)
    assert cut == whole, f"cut {data[1]} changes the answers:\n{whole}\n{cut}"
