"""The log to a syslog daemon: the local one, or a remote one by udp, tcp or a unix socket."""

from __future__ import annotations

import socket
from pathlib import Path
from time import localtime, strftime
from urllib.parse import urlsplit

from server.ops.logging import Level, write_to_stderr

FACILITY_DAEMON = 3
DEFAULT_PORT = 514
LOCAL_SOCKETS = ("/dev/log", "/var/run/syslog", "/var/run/log")
CONNECT_TIMEOUT_S = 2.0


class SyslogError(Exception):
    """The daemon cannot be reached, or its URL is not one."""


class SyslogSink:
    """Lines as RFC 3164 datagrams (or lines, on a stream). Never waits: a line that the socket
    would not take goes to stderr, and a broken stream is dialled again with the next line."""

    def __init__(self, url: str, tag: str, pid: int) -> None:
        self._url = url
        self._header = f"{tag}[{pid}]:"
        self._host = socket.gethostname()
        self._socket: socket.socket | None = dial(url)

    def write(self, level: Level, line: bytes) -> None:
        priority = FACILITY_DAEMON * 8 + level.severity
        stamp = strftime("%b %e %H:%M:%S", localtime())
        host = f"{self._host} " if self._url else ""
        packet = f"<{priority}>{stamp} {host}{self._header} ".encode() + line
        try:
            if self._socket is None:
                self._socket = dial(self._url)
            if self._socket.type == socket.SOCK_STREAM:
                packet += b"\n"
            self._socket.send(packet, socket.MSG_DONTWAIT)
        except BlockingIOError:
            write_to_stderr(line + b"\n")
        except (OSError, SyslogError):
            self.close()
            write_to_stderr(line + b"\n")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def dial(url: str) -> socket.socket:
    """A connected socket. An empty URL means the local daemon."""
    if not url:
        return dial_first_local()
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
    sock.connect(address)
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
