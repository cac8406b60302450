"""The PROXY protocol: what a load balancer says of the peer behind it, ahead of everything else.

Both forms are understood, the line of text (version 1) and the binary header (version 2). Whoever
begins with neither is served as if it had come directly.
"""

from __future__ import annotations

import ipaddress
from typing import Final

# How long a peer may take to say it.
PREFACE_NS: Final = 5_000_000_000
PREFIX: Final = b"PROXY "
LINE_BYTES_MAX: Final = 107  # with CRLF
SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
HEAD_BYTES: Final = 16  # signature, version and command, family and protocol, length
DETECT_BYTES: Final = 6
# version 2
VERSION: Final = 2
LOCAL, PROXY = 0, 1
STREAM: Final = 1
ADDRESS_BYTES: Final = {1: 4, 2: 16}  # by family: IPv4, IPv6
PORT_MAX: Final = 65535

# How many bytes the header has, and whose address it tells; an empty one: the connection's own.
Header = tuple[int, str, int]
NO_HEADER: Final[Header] = (0, "", 0)


class ProxyHeaderError(ValueError):
    """It begins like a header and is none."""


def read_header(received: bytes) -> Header | None:
    """The header at the beginning of what has come; None: more must come to know."""
    begin = received[:DETECT_BYTES]
    if len(begin) < DETECT_BYTES:
        maybe = PREFIX.startswith(begin) or SIGNATURE.startswith(begin)
        return None if maybe else NO_HEADER
    if begin == PREFIX:
        return read_line(received)
    if SIGNATURE.startswith(begin):
        return read_binary(received)
    return NO_HEADER


def read_line(received: bytes) -> Header | None:
    end = received.find(b"\r\n", 0, LINE_BYTES_MAX)
    if end < 0:
        if len(received) >= LINE_BYTES_MAX:
            raise ProxyHeaderError("invalid PROXY protocol header: v1 line too long")
        return None
    words = received[len(PREFIX) : end].decode("latin-1").split()
    if words[:1] == ["UNKNOWN"]:
        return end + 2, "", 0
    if len(words) != 5:
        raise ProxyHeaderError("invalid PROXY protocol header: invalid v1 format")
    protocol, source, destination, source_port, destination_port = words
    families = {family_of(source), family_of(destination)}
    port = port_of(source_port, "source")
    port_of(destination_port, "dest")
    if protocol not in ("TCP4", "TCP6"):
        raise ProxyHeaderError(f"invalid PROXY protocol header: invalid protocol {protocol}")
    if families != {int(protocol[-1])}:
        other = "IPv6" if protocol == "TCP4" else "IPv4"
        raise ProxyHeaderError(f"invalid PROXY protocol header: {protocol} with {other} address")
    return end + 2, shown(source), port


def family_of(text: str) -> int:
    try:
        if "%" in text:
            raise ValueError
        return ipaddress.ip_address(text).version
    except ValueError:
        raise ProxyHeaderError("invalid PROXY protocol header: invalid address") from None


def port_of(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) <= PORT_MAX):
        raise ProxyHeaderError(f"invalid {what} port: {text[:20]!r}")
    return int(text)


def shown(address: str | bytes) -> str:
    """An IPv4 address in IPv6's clothes is shown as what it is."""
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def read_binary(received: bytes) -> Header | None:
    if not SIGNATURE.startswith(received[: len(SIGNATURE)]):
        raise ProxyHeaderError("invalid PROXY protocol header: invalid signature")
    if len(received) < HEAD_BYTES:
        return None
    version, command = divmod(received[12], 16)
    family, protocol = divmod(received[13], 16)
    size = int.from_bytes(received[14:16])
    if version != VERSION:
        raise ProxyHeaderError(
            f"invalid PROXY protocol header: invalid version 0x{version << 4:02x}"
        )
    if command not in (LOCAL, PROXY):
        raise ProxyHeaderError(f"unknown PROXY protocol command: 0x{command:02x}")
    if command == PROXY:
        check_family(family, protocol, size)
    end = HEAD_BYTES + size
    if len(received) < end:
        return None
    if command == LOCAL or family not in ADDRESS_BYTES:
        return end, "", 0
    length = ADDRESS_BYTES[family]
    ports = HEAD_BYTES + 2 * length
    source = bytes(received[HEAD_BYTES : HEAD_BYTES + length])
    return end, shown(source), int.from_bytes(received[ports : ports + 2])


def check_family(family: int, protocol: int, size: int) -> None:
    unsupported = "unsupported PROXY protocol feature"
    if protocol != STREAM:
        raise ProxyHeaderError(f"{unsupported}: only STREAM protocol supported")
    if family not in (0, *ADDRESS_BYTES):
        raise ProxyHeaderError(f"{unsupported}: unsupported address family 0x{family << 4:02x}")
    if family and size < 2 * ADDRESS_BYTES[family] + 4:
        name = "IPv4" if family == 1 else "IPv6"
        raise ProxyHeaderError(f"{name} address data too short: {size} bytes")
