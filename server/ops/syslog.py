"""The log to a syslog daemon: the local one, or a remote one by udp, tcp or a unix socket."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from time import localtime, strftime
from urllib.parse import urlsplit

from server.clock import Clock
from server.ops.logging import Level, write_to_stderr

FACILITY_DAEMON = 3
DEFAULT_PORT = 514
LOCAL_SOCKETS = ("/dev/log", "/var/run/syslog", "/var/run/log")
CONNECT_TIMEOUT_S = 2.0
PAUSE_MIN_NS = 1_000_000_000
PAUSE_MAX_NS = 60_000_000_000


class SyslogError(Exception):
    """The daemon cannot be reached, or its URL is not one."""


class SyslogSink:
    """Lines as RFC 3164 datagrams (or lines, on a stream). Never waits: what the socket would not
    take goes to stderr, and so does everything while a broken connection is dialled again."""

    def __init__(self, url: str, tag: str, pid: int, clock: Clock) -> None:
        self._header = f"{tag}[{pid}]:"
        self._host = f"{socket.gethostname()} " if url else ""
        self._socket: socket.socket | None = dial(url)
        self._redial = Redial(url, clock)
        self._rest = b""  # of a line that a stream took a part of

    def write(self, level: Level, line: bytes) -> None:
        priority = FACILITY_DAEMON * 8 + level.severity
        stamp = strftime("%b %e %H:%M:%S", localtime())
        packet = f"<{priority}>{stamp} {self._host}{self._header} ".encode() + line
        if self._socket is None:
            self._socket = self._redial.take()
        if self._socket is None or not self._send(self._socket, packet):
            write_to_stderr(line + b"\n")

    def _send(self, sock: socket.socket, packet: bytes) -> bool:
        try:
            if sock.type == socket.SOCK_DGRAM:
                sock.send(packet)
                return True
            self._rest = self._rest[sock.send(self._rest) :] if self._rest else b""
            if self._rest:
                return False
            packet += b"\n"
            self._rest = packet[sock.send(packet) :]
        except BlockingIOError:
            return False
        except OSError:
            # A datagram that an answer of the network says was refused needs no new socket.
            if sock.family == socket.AF_UNIX or sock.type == socket.SOCK_STREAM:
                self._drop()
            return False
        return True

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def close(self) -> None:
        self._drop()
        self._redial.close()


class Redial:
    """Dials in a thread of its own: one attempt at a time, and ever fewer while they fail."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._pause_ns = PAUSE_MIN_NS
        self._next_ns = 0
        self._lock = threading.Lock()
        self._found: socket.socket | None = None
        self._is_dialling = self._is_closed = False

    def take(self) -> socket.socket | None:
        """What was dialled meanwhile; else begins another attempt when it is time for one."""
        with self._lock:
            found, self._found = self._found, None
            now_ns = self._clock.monotonic_ns()
            if found is not None:
                self._pause_ns = PAUSE_MIN_NS
            elif not self._is_dialling and now_ns >= self._next_ns:
                self._is_dialling = True
                self._next_ns = now_ns + self._pause_ns
                self._pause_ns = min(2 * self._pause_ns, PAUSE_MAX_NS)
                threading.Thread(target=self._dial, name="syslog", daemon=True).start()
        return found

    def _dial(self) -> None:
        found = None
        try:
            found = dial(self._url)
        except SyslogError as error:
            write_to_stderr(f"{error}\n".encode())
        with self._lock:
            self._is_dialling = False
            if self._is_closed and found is not None:
                found.close()
            else:
                self._found = found

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._found is not None:
                self._found.close()
                self._found = None


def dial(url: str) -> socket.socket:
    """A connected socket that never waits. An empty URL means the local daemon."""
    sock = dial_first_local() if not url else dial_url(url)
    sock.setblocking(False)
    return sock


def dial_url(url: str) -> socket.socket:
    parts = urlsplit(url)
    try:
        if parts.scheme == "unix":
            return dial_unix(parts.path)
        if parts.scheme in ("udp", "tcp"):
            return dial_network(parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORT)
    except (OSError, ValueError) as error:
        raise SyslogError(f'error connecting to syslog: "{error}"') from error
    raise SyslogError(f'error invalid network type: "{parts.scheme}"')


def dial_network(scheme: str, host: str, port: int) -> socket.socket:
    kind = socket.SOCK_DGRAM if scheme == "udp" else socket.SOCK_STREAM
    family, _, _, _, address = socket.getaddrinfo(host, port, type=kind)[0]
    sock = socket.socket(family, kind)
    sock.settimeout(CONNECT_TIMEOUT_S)
    try:
        sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


def dial_unix(path: str) -> socket.socket:
    """Datagram first, then stream, as daemons differ."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        sock = socket.socket(socket.AF_UNIX, kind)
        try:
            sock.connect(path)
        except OSError as error:
            sock.close()
            if kind == socket.SOCK_STREAM:
                raise error
        else:
            return sock
    raise AssertionError("unreachable")


def dial_first_local() -> socket.socket:
    for path in LOCAL_SOCKETS:
        if Path(path).exists():
            try:
                return dial_unix(path)
            except OSError:
                continue
    raise SyslogError('error connecting to syslog: "Unix syslog delivery error"')
