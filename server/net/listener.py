"""Listening sockets, and the addresses under which clients may be told to find them."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final

from config.decode import split_advertised

BACKLOG: Final = 4096
SIOCGIFCONF: Final = 0x8912
IFREQ_BYTES: Final = 40
INTERFACES_MAX: Final = 1024
ANY_HOSTS: Final = ("0.0.0.0", "::")


class ListenError(Exception):
    """The address cannot be listened on; the text says which and why."""


def listen(host: str, port: int) -> socket.socket:
    """A non-blocking listening socket. Port -1 is a free one. A wildcard takes both families."""
    port = max(port, 0)
    try:
        return bind(host, port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        where = join_host_port(host, port)
        raise ListenError(f'{where}, "listen tcp {where}: bind: {reason}"') from error


def bind(host: str, port: int) -> socket.socket:
    if host in ANY_HOSTS and socket.has_dualstack_ipv6():
        try:
            return bound(socket.AF_INET6, ("::", port))
        except OSError:
            # A machine may know IPv6 and still have it switched off.
            if host == "::":
                raise
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return bound(family, address)


def bound(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            only_v6 = address[0] != "::"
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_v6)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listening_urls(scheme: str, host: str, port: int) -> list[str]:
    """For the ports file: a wildcard stands for every address of every interface."""
    hosts = interface_addresses() if host in ANY_HOSTS else [resolved(host)]
    return [f"{scheme}://{join_host_port(known, port)}" for known in hosts]


def resolved(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return socket.gethostbyname(host)


def split_host_port(text: str, default_port: int) -> tuple[str, int]:
    """`host`, `host:port` or `[v6]:port`; a missing port, 0 or -1 is the default one."""
    host, port = split_advertised(text)
    return host, port or default_port


def interface_addresses() -> list[str]:
    return ipv4_addresses() + ipv6_addresses()


def ipv4_addresses() -> list[str]:
    buffer = array.array("B", bytes(IFREQ_BYTES * INTERFACES_MAX))
    address, size = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock.fileno(), SIOCGIFCONF, struct.pack("iL", size, address))
    used = struct.unpack("iL", answer)[0]
    raw = buffer.tobytes()
    # In each entry: 16 bytes of name, then a sockaddr_in with the address at its offset 4.
    starts = range(0, used, IFREQ_BYTES)
    return [socket.inet_ntoa(raw[start + 20 : start + 24]) for start in starts]


def ipv6_addresses() -> list[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return []
    return [str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))) for line in lines]
