"""Plain clients over real loopback sockets, driven without an event loop."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from server.core._broker import Broker
from server.core._connection import live_connections
from server.core._outbox import live_buffers
from server.net._poller import Poller
from tests.unit.memory_client import QUIET, RecordingHooks

DEADLINE_S = 30.0
NAP_S = 450e-6


class Served:
    """A poller with one listener; `until` runs it like a loop would."""

    def __init__(
        self, read_buffer_bytes: int = 131072, clock_ns: Callable[[], int] | None = None
    ) -> None:
        self.hooks = RecordingHooks()
        self.clock_ns = clock_ns or time.monotonic_ns
        self.broker = Broker(self.hooks, clock_ns, seed=1)
        self.poller = Poller(self.broker, read_buffer_bytes)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.setblocking(False)
        self.poller.listen(self.listener.fileno())
        self.peers: list[Peer] = []
        self.ready = select.poll()
        self.ready.register(self.poller.fileno(), select.POLLIN)

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            assert time.monotonic() < deadline, "not reached"
            self.ready.poll(10)
            self.poller.run()
            self.broker.tick(self.clock_ns())
            self.broker.turn.run()

    def peer(self, connect: bytes = QUIET) -> Peer:
        peer = Peer(self, self.listener.getsockname()[1])
        if connect:
            assert peer.ask(connect + b"PING\r\n").endswith(b"PONG\r\n")
        return peer

    def close(self) -> None:
        self.poller.close()
        for peer in self.peers:
            peer.socket.close()
        self.listener.close()


class Peer:
    def __init__(self, served: Served, port: int) -> None:
        self.served = served
        self.socket = socket.create_connection(("127.0.0.1", port))
        served.peers.append(self)
        self.socket.setblocking(False)
        self.heard = b""
        self.ended = False
        served.until(lambda: self.listen().endswith(b"\r\n"))
        self.info, self.heard = self.heard, b""

    def listen(self) -> bytes:
        try:
            while chunk := self.socket.recv(1 << 20):
                self.heard += chunk
            self.ended = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.ended = True
        return self.heard

    def send(self, data: bytes) -> None:
        """All of it, with the server running meanwhile."""
        view = memoryview(data)

        def sent_all() -> bool:
            nonlocal view
            try:
                while view:
                    view = view[self.socket.send(view) :]
            except BlockingIOError:
                return False
            except (BrokenPipeError, ConnectionResetError):
                return True
            return True

        self.served.until(sent_all)

    def ask(self, data: bytes, end: bytes = b"PONG\r\n") -> bytes:
        self.send(data)
        self.served.until(lambda: self.listen().endswith(end) or self.ended)
        said, self.heard = self.heard, b""
        return said


@pytest.fixture
def served() -> Iterator[Served]:
    before = live_connections()
    served = Served()
    yield served
    served.close()
    assert live_buffers() == (0, 0)
    assert live_connections() - before <= len(served.peers)


@pytest.mark.feature("1-001", "1-004")
def test_the_server_speaks_first(served: Served) -> None:
    first, second = served.peer(b""), served.peer(b"")
    assert first.info.startswith(b'INFO {"')
    assert first.info.endswith(b"} \r\n")
    assert b'"client_id":1' in first.info
    assert b'"client_id":2' in second.info
    assert b'"client_ip":"127.0.0.1"' in first.info


@pytest.mark.parametrize("size", [0, 1, 3071, 3072, 65536, 131072, 500_000, 1_048_576])
def test_a_message_of_any_size_arrives_whole(served: Served, size: int) -> None:
    reader, writer = served.peer(), served.peer()
    reader.ask(b"SUB a 1\r\nPING\r\n")
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    message = b"PUB a %d\r\n%b\r\n" % (size, body)
    writer.ask(message * 3 + b"PING\r\n")
    expected = b"MSG a 1 %d\r\n%b\r\n" % (size, body) * 3
    served.until(lambda: len(reader.listen()) >= len(expected))
    assert reader.heard == expected


@pytest.mark.parametrize("missing", [1, 30, 100, 3000])
def test_a_message_whose_first_part_fills_the_read_buffer(missing: int) -> None:
    """What is kept then fills its chunk to the last byte, while a little is still to come."""
    buffer_bytes = 65536
    served = Served(buffer_bytes)
    peer = served.peer()
    head = b"PUB a %d\r\n" % (buffer_bytes - 13 + missing)
    first = head + b"x" * (buffer_bytes - len(head))
    rest = b"x" * (buffer_bytes - 13 + missing - (buffer_bytes - len(head)))
    for piece in (first, rest[:1], rest[1:]):
        rounds = iter(range(5))
        assert peer.socket.send(piece) == len(piece)
        served.until(lambda: next(rounds, None) is None)  # noqa: B023
    assert peer.ask(b"\r\nPING\r\n") == b"PONG\r\n"
    assert served.broker.in_msgs == 1
    served.close()


@pytest.mark.feature("1-080", "1-091")
def test_many_readers_that_read_late_get_everything_in_order(served: Served) -> None:
    served.broker.no_fast_producer_stall = False
    readers = [served.peer() for _ in range(4)]
    for reader in readers:
        reader.ask(b"SUB a 1\r\nPING\r\n")
    writer = served.peer()
    sizes = [10, 5000, 40_000, 3000, 100_000, 1] * 40
    writer.ask(b"".join(b"PUB a %d\r\n%b\r\n" % (n, b"x" * n) for n in sizes) + b"PING\r\n")
    expected = b"".join(b"MSG a 1 %d\r\n%b\r\n" % (n, b"x" * n) for n in sizes)
    for reader in readers:
        served.until(lambda reader=reader: len(reader.listen()) >= len(expected))
        assert reader.heard == expected


@pytest.mark.feature("1-087", "5-024")
def test_a_reader_that_never_reads_is_dropped_and_hurts_nobody(served: Served) -> None:
    served.broker.max_pending = 4 << 20
    deaf, reader, writer = served.peer(), served.peer(), served.peer()
    deaf.ask(b"SUB a 1\r\nPING\r\n")
    reader.ask(b"SUB a 1\r\nPING\r\n")
    body = b"z" * 100_000
    for _ in range(200):
        writer.send(b"PUB a %d\r\n%b\r\n" % (len(body), body))
        reader.listen()
        if served.hooks.closed:
            break
    served.until(lambda: bool(served.hooks.closed) or len(reader.listen()) > 19_000_000)
    assert served.hooks.closed == [(1, "Slow Consumer (Pending Bytes)")]
    assert served.broker.slow_consumers_pending == 1
    assert writer.ask(b"PING\r\n") == b"PONG\r\n"


@pytest.mark.feature("1-050")
def test_endless_bytes_without_a_newline_cost_nothing(served: Served) -> None:
    peer = served.peer()
    peer.send(b"PUB " + b"x" * 50_000_000)
    served.until(lambda: peer.listen() is not None and peer.ended)
    assert served.hooks.closed == [(1, "Maximum Control Line Exceeded")]


@pytest.mark.feature("1-047")
def test_the_last_words_reach_a_peer_that_is_still_sending(served: Served) -> None:
    peer = served.peer()
    said = peer.ask(b"NONSENSE " + b"y" * 20_000 + b"\r\n")
    assert said == b"-ERR 'Unknown Protocol Operation'\r\n"


def test_a_peer_that_leaves_in_the_middle_of_a_message(served: Served) -> None:
    peer, other = served.peer(), served.peer()
    peer.send(b"SUB a 1\r\nPUB a 500000\r\n" + b"x" * 200_000)
    peer.socket.close()
    served.until(lambda: bool(served.hooks.closed))
    assert other.ask(b"PUB a 1\r\nx\r\nPING\r\n") == b"PONG\r\n"
    assert served.hooks.closed == [(1, "Client Closed")]


def test_a_reset_is_a_read_error(served: Served) -> None:
    peer = served.peer()
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()
    served.until(lambda: bool(served.hooks.closed))
    assert served.hooks.closed[0][1] in ("Read Error", "Client Closed")


def test_many_connections_come_and_go(served: Served) -> None:
    peers = [served.peer() for _ in range(300)]
    assert len(served.broker.clients) == 300
    for peer in peers:
        peer.socket.close()
    served.until(lambda: not served.broker.clients)
    assert served.broker.default_account.connections == 0


def test_the_last_descriptors_are_not_for_connections(served: Served) -> None:
    """They are the store's: who comes then is closed, and accepting pauses."""
    served.peer()
    served.poller.descriptors_max = 4
    late = socket.create_connection(served.listener.getsockname())
    served.until(lambda: served.poller.accept_errors > 0)
    late.settimeout(DEADLINE_S)
    assert late.recv(1) == b""
    late.close()
    served.poller.descriptors_max = 0
    served.peer()
    assert len(served.broker.clients) == 2


def test_an_unlistened_socket_accepts_no_more(served: Served) -> None:
    served.poller.unlisten(served.listener.fileno())
    late = socket.create_connection(served.listener.getsockname())
    for _ in range(5):
        served.poller.run()
    assert not served.broker.clients
    late.close()


def test_accepted_descriptors_can_go_to_somebody_else(served: Served) -> None:
    given: list[tuple[int, str, int]] = []
    other = socket.create_server(("127.0.0.1", 0))
    other.setblocking(False)
    served.poller.listen(other.fileno(), lambda fd, ip, port: given.append((fd, ip, port)))
    caller = socket.create_connection(other.getsockname())
    served.until(lambda: bool(given))
    fd, ip, port = given[0]
    assert (ip, port) == caller.getsockname()
    client = served.poller.adopt(fd, ip, port)
    called = select.poll()
    called.register(caller, select.POLLIN)
    served.until(lambda: bool(called.poll(0)))
    assert caller.recv(4) == b"INFO"
    assert client.fd == fd
    caller.close()
    other.close()


def test_the_server_closes_everybody(served: Served) -> None:
    peers = [served.peer() for _ in range(3)]
    served.poller.close()
    for peer in peers:
        served.until(lambda peer=peer: peer.listen() is not None and peer.ended)
    assert {reason for _, reason in served.hooks.closed} == {"Server Shutdown"}


@pytest.mark.parametrize("size", [1, 131_071, 131_072, 131_073, 500_000])
def test_the_end_behind_what_was_read_is_heard(served: Served, size: int) -> None:
    peer = served.peer()
    message = b"PUB a 1\r\nx\r\n"
    said = message * (size // len(message) + 1)
    peer.send(said)
    peer.socket.close()
    served.until(lambda: bool(served.hooks.closed))
    assert served.broker.in_msgs == len(said) // len(message)


@pytest.mark.parametrize("payload", [131_072 - 15, 131_072, 131_072 * 2, 900_000])
def test_a_payload_as_long_as_its_buffer_is_heard(served: Served, payload: int) -> None:
    peer = served.peer(QUIET)
    said = b"PUB a %d\r\n" % payload + bytes(payload) + b"\r\n"
    assert peer.ask(said * 3 + b"PING\r\n") == b"PONG\r\n"
    assert served.broker.in_msgs == 3


def test_the_poller_looks_again_while_an_exchange_is_lively() -> None:
    asked: list[Callable[[], None]] = []
    now_ns = time.monotonic_ns()
    served = Served(clock_ns=lambda: now_ns)
    peer = served.peer()
    served.broker.turn.set_call_soon(asked.append)
    peer.send(b"SUB a 1\r\n")
    for _ in range(20):
        peer.ask(b"PUB a 1\r\nx\r\n", b"MSG a 1 1\r\nx\r\n")
    assert asked.count(served.poller.look_again) == 1
    for _ in range(3):
        asked.clear()
        served.poller.look_again()
        assert asked == [served.poller.look_again]
    asked.clear()
    now_ns += 1_000_000
    served.poller.look_again()
    assert asked == []
    served.close()


def test_input_that_nobody_waits_for_gathers() -> None:
    now_ns = 1_000_000_000
    served = Served(clock_ns=lambda: now_ns)
    peer = served.peer()
    for sent in range(1, 41):
        now_ns += 500_000
        peer.send(b"PUB a 1\r\nx\r\n")
        served.until(lambda sent=sent: served.broker.in_msgs == sent)
    peer.socket.send(b"PUB a 1\r\nx\r\n")
    began = time.perf_counter()
    served.poller.run()
    assert time.perf_counter() - began >= NAP_S
    assert served.broker.in_msgs == 41
    served.close()


def test_many_are_read_in_one_round_while_listeners_and_publishers_go(served: Served) -> None:
    peers = [served.peer() for _ in range(40)]
    for number, peer in enumerate(peers):
        peer.ask(b"SUB own.%d 1\r\nPUB own.%d 1\r\nx\r\nPING\r\n" % (number, number))
    said = served.broker.in_msgs
    for number, peer in enumerate(peers):
        if number % 5 == 1:
            peer.socket.send(b"UNSUB 1\r\n")
        peer.socket.send(b"PUB own.%d 1\r\ny\r\n" % number)
        if number % 5 == 2:
            peer.socket.send(b"nonsense\r\n")
        if number % 5 == 3:
            peer.socket.close()
    newcomer = socket.create_connection(("127.0.0.1", served.listener.getsockname()[1]))
    served.until(lambda: len(served.hooks.closed) == 16 and served.broker.in_msgs == said + 40)
    for number in range(0, 40, 5):
        expected = b"MSG own.%d 1 1\r\ny\r\n" % number
        served.until(lambda n=number, e=expected: peers[n].listen() == e)
        assert peers[number + 1].ask(b"PING\r\n") == b"PONG\r\n"
    newcomer.close()


def test_timers_of_a_machine_that_has_just_started() -> None:
    now_ns = 1
    served = Served(clock_ns=lambda: now_ns)
    peer = served.peer()
    while not peer.listen():
        assert now_ns < 60_000_000_000, "no PING of the first minute came"
        now_ns += 50_000_000
        served.broker.tick(now_ns)
        served.broker.turn.run()
    assert peer.heard == b"PING\r\n"
    served.close()
