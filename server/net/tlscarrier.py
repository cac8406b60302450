"""Client connections on a listener with TLS: INFO in the clear, then the upgrade (or the reverse).

The poller accepts and hands over a descriptor. `TlsAcceptor` makes the `Client`, lets INFO out at
the right moment, decides between TLS and plain, and gives the socket to the loop's TLS. From then
on the `Client` is fed by `Carrier`, which is a buffered protocol of the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol, cast

from server.clock import Clock
from server.core._broker import Broker
from server.core._client import Client
from server.core.tlsstate import TlsState
from server.net.tls import Handshake, certificate_end, suite_name

READ_BUFFER_BYTES: Final = 64 * 1024
TLS_HANDSHAKE_BYTE: Final = 0x16
SHUTDOWN_TIMEOUT_S: Final = 2.0
# A peer that leaves more than this unread at the close gets no polite end.
LINGER_BYTES_MAX: Final = 64 * 1024
HANDSHAKE_FAILED: Final = "TLS Handshake Failure"
NOT_TLS: Final = {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER"}
NO_TLS_TEXT: Final = "tls: first record does not look like a TLS handshake"

# As `server.core._peer` has it: from the bytes so far to how many of them it has and the address.
Preface = Callable[[bytes], tuple[int, str, int] | None]

# One buffer for all: it is filled and consumed within one callback of the loop.
_read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))


class TlsSettings:
    """What a listener's `tls` block comes to; replaced whole at a reload."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        timeout_s: float,
        first: bool,
        fallback_s: float,
        allow_non_tls: bool,
        pinned: frozenset[str],
        rate_limit: int,
        certificate: bytes,
    ) -> None:
        self.context = context
        self.timeout_s = timeout_s
        self.first = first
        self.fallback_s = fallback_s
        # Handshake first without a fallback leaves plain clients no moment to speak.
        self.allow_non_tls = allow_non_tls and not (first and not fallback_s)
        self.pinned = pinned
        self.rate_limit = rate_limit
        self._certificate = certificate

    @cached_property
    def not_after(self) -> str:
        """When the certificate that clients are shown ends, RFC 3339."""
        return certificate_end(self._certificate)


class Log(Protocol):
    def debug(self, text: str, conn: str = "") -> None: ...

    def error(self, text: str, conn: str = "") -> None: ...

    def warn(self, text: str, conn: str = "") -> None: ...


class RateLimit:
    """At most so many a second; counts what it refused."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window_ns = 0
        self._taken = 0
        self.refused = 0

    def allow(self, limit: int) -> bool:
        now = self._clock.monotonic_ns()
        if now - self._window_ns >= 1_000_000_000:
            self._window_ns, self._taken = now, 0
        if self._taken >= limit:
            self.refused += 1
            return False
        self._taken += 1
        return True

    def take_refused(self) -> int:
        count, self.refused = self.refused, 0
        return count


class TlsAcceptor:
    """Takes accepted descriptors (`on_accept`) until nobody gives it any more."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        settings: TlsSettings,
        clock: Clock,
        log: Log,
        info_json: Callable[[Client], bytes],
        preface: Preface | None = None,
        preface_s: float = 0.0,
        descriptors_max: Callable[[], int] = lambda: 0,
    ) -> None:
        """`descriptors_max`: those from there on are not for connections; 0: all are."""
        self.loop = loop
        self.preface = preface
        self.preface_s = preface_s
        self.descriptors_max = descriptors_max
        self.broker = broker
        self.settings = settings
        self.rate = RateLimit(clock)
        self.log = log
        self.info_json = info_json
        self._tasks: set[asyncio.Task[None]] = set()

    def on_accept(self, fd: int, ip: str, port: int) -> None:
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        carrier = Carrier(self, sock, ip, port)
        task = self.loop.create_task(carrier.open())
        # The loop keeps only a weak reference.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True, slots=True)
class Ahead:
    """What came ahead of the protocol: the address told, or bytes of a plain connection."""

    early: bytes = b""
    ip: str = ""
    port: int = 0
    error: Exception | None = None


class Carrier(asyncio.BufferedProtocol):
    """One connection: first a raw socket, then a transport of the loop."""

    def __init__(self, acceptor: TlsAcceptor, sock: socket.socket, ip: str, port: int) -> None:
        self._acceptor = acceptor
        self._log = acceptor.log
        self._loop = acceptor.loop
        self._settings = acceptor.settings
        self._socket = sock
        self._transport: asyncio.Transport | None = None
        self._early = b""
        self.client = Client(
            acceptor.broker,
            write=self._write,
            close_transport=self._close,
            ip=ip,
            port=port,
            pause_transport=self._pause,
            transport_pending=self._pending,
        )
        self.client.server_port = sock.getsockname()[1]

    async def open(self) -> None:
        """From accept to the first byte of the protocol. Owns the socket until then."""
        try:
            await self._open()
        finally:
            if self._transport is None:
                self._socket.close()

    async def _open(self) -> None:
        client, settings = self.client, self._settings
        first, ahead = settings.first, None
        if first and settings.fallback_s:
            first, ahead = await self._begins_tls(settings.fallback_s)
        if first:
            client.tls = TlsState("", "", None, first=True)
        client.start()
        if client.closed:
            return
        preface = self._acceptor.preface
        if preface is not None:
            # The time for CONNECT begins behind it.
            client.postpone_auth_timeout(int(self._acceptor.preface_s * 1e9))
            ahead = ahead or await self._read_preface(preface)
            self._heed(ahead)
        if client.closed:
            return
        early = ahead.early if ahead is not None else b""
        if (
            settings.allow_non_tls
            and not first
            and (early or not await self._wants_tls(settings.timeout_s))
        ):
            if not client.closed:
                self._early = early
                await self._loop.connect_accepted_socket(lambda: self, self._socket)
            return
        if not client.closed and not self._is_throttled(settings.rate_limit):
            await self._shake_hands(settings)

    async def _begins_tls(self, within_s: float) -> tuple[bool, Ahead | None]:
        """Whether the peer speaks unasked, and what it said ahead of that.

        A load balancer says its header at once, whoever is behind it: what follows counts.
        """
        if not await self._readable(within_s):
            return False, None
        if self._acceptor.preface is None:
            return True, None
        ahead = await self._read_preface(self._acceptor.preface)
        if ahead.error is not None or ahead.early:
            return True, ahead
        return await self._readable(within_s), ahead

    async def _read_preface(self, preface: Preface) -> Ahead:
        """Takes what comes ahead of TLS from the socket; what turns out to be none is given back.

        All but the last part has been taken before it is known how much there is. No part of a
        header begins a TLS handshake, so what is given back is for a plain connection.
        """
        try:
            async with asyncio.timeout(self._acceptor.preface_s):
                taken, found = await self._take_preface(preface)
            size, ip, port = found
            if size:
                self._socket.recv(size - len(taken))
        except (OSError, ValueError) as error:
            return Ahead(error=error)
        return Ahead(b"" if size else taken, ip, port)

    def _heed(self, ahead: Ahead) -> None:
        client, error = self.client, ahead.error
        if isinstance(error, TimeoutError):
            client.refuse_preface("timeout reading PROXY protocol header")
        elif isinstance(error, OSError):
            client.peer_closed("Read Error")
        elif error is not None:
            client.refuse_preface(str(error))
        else:
            client.postpone_auth_timeout()
            if ahead.ip:
                client.introduce(ahead.ip, ahead.port)

    async def _take_preface(self, preface: Preface) -> tuple[bytes, tuple[int, str, int]]:
        """What was taken from the socket, and what it and what is still there mean."""
        taken = b""
        while True:
            await self._readable(self._acceptor.preface_s)
            more = self._socket.recv(READ_BUFFER_BYTES, socket.MSG_PEEK)
            if not more:
                raise ConnectionResetError("closed ahead of the protocol")
            found = preface(taken + more)
            if found is not None:
                return taken, found
            taken += self._socket.recv(len(more))

    def _is_throttled(self, limit: int) -> bool:
        if not limit or self._acceptor.rate.allow(limit):
            return False
        self.client.close(
            "Maximum Connections Exceeded",
            "Connection throttling is active. Please try again later.",
        )
        return True

    async def _readable(self, timeout_s: float) -> bool:
        """Whether the peer says something (or hangs up) in that time."""
        seen = self._loop.create_future()
        fd = self._socket.fileno()

        def ready() -> None:
            if not seen.done():
                seen.set_result(None)

        self._loop.add_reader(fd, ready)
        try:
            await asyncio.wait_for(seen, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._loop.remove_reader(fd)
        return True

    async def _wants_tls(self, timeout_s: float) -> bool:
        if not await self._readable(timeout_s) or self.client.closed:
            return False
        try:
            return self._socket.recv(1, socket.MSG_PEEK)[:1] == bytes([TLS_HANDSHAKE_BYTE])
        except OSError:
            return False

    async def _shake_hands(self, settings: TlsSettings) -> None:
        self._log.debug("Starting TLS client connection handshake", self.client.label)
        timer = self._loop.call_later(settings.timeout_s, self._time_out)
        # The time for CONNECT begins behind the handshake.
        self.client.postpone_auth_timeout(int(settings.timeout_s * 1e9))
        own: socket.socket | None = None
        try:
            # The loop closes its descriptor before an error gets here.
            own = self._second_descriptor()
            await self._loop.connect_accepted_socket(
                lambda: self,
                self._socket,
                ssl=settings.context,
                # Ours ends it before, with a word to the client.
                ssl_handshake_timeout=settings.timeout_s + 1,
                ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
            )
        except (ssl.SSLError, OSError) as error:
            if not self.client.closed:
                self._say_alert(own, error)
                self._fail(describe(error))
        finally:
            timer.cancel()
            if own is not None:
                own.close()

    def _second_descriptor(self) -> socket.socket | None:
        """For a last word. None where the rest of the descriptors is for files."""
        own = self._socket.dup()
        if 0 < self._acceptor.descriptors_max() <= own.fileno():
            own.close()
            return None
        return own

    def _say_alert(self, sock: socket.socket | None, error: Exception) -> None:
        """What TLS says about a failed handshake; nothing to who does not speak it."""
        is_tls = isinstance(error, ssl.SSLError) and error.reason not in NOT_TLS
        if sock is not None and is_tls:
            with contextlib.suppress(OSError):
                sock.send(getattr(error, "alert", b""))

    def _time_out(self) -> None:
        self._log.debug("TLS handshake timeout", self.client.label)
        if not isinstance(self.client.tls, TlsState):
            # In the clear: whoever was told to upgrade and has not yet can read it.
            with contextlib.suppress(OSError):
                self._socket.send(b"-ERR 'Secure Connection - TLS Required'\r\n")
        self.client.close(HANDSHAKE_FAILED)

    def _fail(self, why: str) -> None:
        # Whoever does not speak TLS is no error of ours to look for.
        tell = self._log.debug if why == NO_TLS_TEXT else self._log.error
        tell(f"TLS handshake error: {why}", self.client.label)
        self.client.close(HANDSHAKE_FAILED)

    def _finish(self, connection: Handshake) -> None:
        """The handshake is done; nothing of the protocol has been read yet."""
        client, settings = self.client, self._settings
        first = isinstance(client.tls, TlsState)
        version = (connection.version() or "").removeprefix("TLSv")
        cipher = suite_name((connection.cipher() or ("",))[0])
        peer = connection.getpeercert(binary_form=True)
        chain = connection.chain_behind(peer) if peer is not None else ()
        state = TlsState(version, cipher, peer, first, chain)
        if settings.pinned and state.peer_key_sha256 not in settings.pinned:
            self._fail("certificate not pinned")
            return
        client.tls = state
        client.postpone_auth_timeout()
        self._log.debug("TLS handshake complete", client.label)
        self._log.debug(f"TLS version {version}, cipher suite {cipher}", client.label)
        if first:
            client.send_info(self._acceptor.info_json(client))
            client.flush()

    # What the client asks of its carrier

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
            return
        # In the clear, and short: INFO or one -ERR on a socket that nothing was written to before.
        with contextlib.suppress(OSError):
            self._socket.send(data)

    def _close(self) -> None:
        transport = self._transport
        if transport is None:
            # Whatever `open` is waiting for ends now, and then it closes the socket. Closing here
            # would give the descriptor to somebody else while the loop still watches it.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        elif transport.get_write_buffer_size() > LINGER_BYTES_MAX:
            transport.abort()
        else:
            transport.close()

    def _pause(self, pause: bool) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _pending(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    # What the loop tells its protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not declared as asyncio's, but have all their methods.
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("ssl_object")
        if connection is not None and not self.client.closed:
            self._finish(connection)
        # Now: from here on the loop may bring what was sent behind it.
        early, self._early = self._early, b""
        if early:
            self.client.feed(early)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.client.feed(_read_buffer[:nbytes])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.client.peer_closed("Client Closed" if error is None else "Read Error")


def describe(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason in NOT_TLS:
        return NO_TLS_TEXT
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"tls: {error.reason.lower().replace('_', ' ')}"
    return str(error) or type(error).__name__
