"""Connections on their way from the listener to TLS, or past it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server.clock import SystemClock
from server.core._broker import Broker
from server.net.clients import tls_settings
from server.net.listener import listen
from server.net.proxyheader import Header, read_header
from server.net.tlscarrier import Carrier, TlsAcceptor
from tests.e2e.test_tls import Pki
from tests.unit.config_files import options

DEADLINE_S = 30


class NoLog:
    def debug(self, text: str, conn: str = "") -> None: ...

    def error(self, text: str, conn: str = "") -> None: ...

    def warn(self, text: str, conn: str = "") -> None: ...


class Wire(asyncio.Transport):
    """What is written stays here."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        pass


def accepted() -> tuple[socket.socket, socket.socket]:
    """The peer's end, and the one that a listener hands over."""
    with listen("127.0.0.1", -1) as listener:
        peer = socket.create_connection(listener.getsockname(), timeout=DEADLINE_S)
        own, _ = listener.accept()
    own.setblocking(False)
    return peer, own


def acceptor_for(
    folder: Path, tls: str, outside: str, descriptors_max: Callable[[], int] = lambda: 0
) -> TlsAcceptor:
    """To be called with a loop running."""
    settings = tls_settings(options(folder, Pki(folder).config(tls, outside=outside)))
    assert settings is not None
    loop, broker = asyncio.get_running_loop(), Broker()
    preface = read_header if "proxy_protocol" in outside else None
    return TlsAcceptor(
        loop,
        broker,
        settings,
        SystemClock(),
        NoLog(),
        lambda client: b"",
        preface,
        DEADLINE_S,
        descriptors_max,
    )


@pytest.mark.feature("4-084")
def test_what_looked_like_a_header_stays_ahead_of_what_follows(tmp_path: Path) -> None:
    wire, asked = Wire(), list[bytes]()

    def preface(received: bytes) -> Header | None:
        asked.append(received)
        return read_header(received)

    async def serve() -> None:
        acceptor = acceptor_for(tmp_path, "", "proxy_protocol: true\nallow_non_tls: true")
        acceptor.preface = preface
        peer, own = accepted()

        async def bring_at_once(factory: Callable[[], Carrier], sock: Any, **more: Any) -> None:
            """A loop that reads before it tells that the transport is there."""
            carrier = factory()
            carrier.connection_made(wire)
            data = sock.recv(100)
            carrier.get_buffer(-1)[: len(data)] = data
            carrier.buffer_updated(len(data))

        acceptor.loop.connect_accepted_socket = bring_at_once  # type: ignore[method-assign, assignment]
        with peer, own:
            opened = acceptor.loop.create_task(Carrier(acceptor, own, "127.0.0.1", 1).open())
            peer.send(b"P")
            # The answer to the first byte, "more must come", takes it from the socket.
            while not asked:
                await asyncio.sleep(0)
            peer.send(b"ING\r\n")
            await opened
            acceptor.broker.turn.run()

    asyncio.run(asyncio.wait_for(serve(), DEADLINE_S))
    assert asked == [b"P", b"PING\r\n"]
    assert wire.written.endswith(b"\r\nPONG\r\n")
    assert b"-ERR" not in wire.written


@pytest.mark.feature("4-011")
@pytest.mark.parametrize(("descriptors_max", "is_told"), [(0, True), (1, False)])
def test_a_handshake_takes_no_second_descriptor_that_is_for_files(
    tmp_path: Path, descriptors_max: int, is_told: bool
) -> None:
    """With it a peer whose handshake failed would be told why."""

    async def serve() -> str:
        acceptor = acceptor_for(tmp_path, 'min_version: "1.3"', "", lambda: descriptors_max)
        peer, own = accepted()
        carrier = Carrier(acceptor, own, "127.0.0.1", 1)
        said, _ = await asyncio.gather(asyncio.to_thread(shake_hands, peer), carrier.open())
        return said

    said = asyncio.run(asyncio.wait_for(serve(), DEADLINE_S))
    assert ("PROTOCOL_VERSION" in said) is is_told, said


def shake_hands(peer: socket.socket) -> str:
    """What a client of an older version hears, behind INFO."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with peer, pytest.raises((ssl.SSLError, OSError)) as refused:
        context.wrap_socket(peer)
    return str(refused.value)
