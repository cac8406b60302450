"""Answers of the system account compressed as their requester accepts it."""

from __future__ import annotations

import gzip

import cramjam

HEADER = b"accept-encoding:"


def accepted_encoding(headers: bytes) -> str:
    """What the requester's `Accept-Encoding` asks for; empty without one."""
    for line in headers.split(b"\r\n")[1:]:
        if line.lower().startswith(HEADER):
            wanted = line[len(HEADER) :].strip().lower()
            if b"snappy" in wanted or b"s2" in wanted:
                return "snappy"
            return "gzip" if b"gzip" in wanted else "identity"
    return ""


def encoded(payload: bytes, encoding: str) -> tuple[bytes, bytes]:
    """Header block and body."""
    if not encoding:
        return b"", payload
    if encoding == "gzip":
        payload = gzip.compress(payload)
    elif encoding == "snappy":
        payload = bytes(cramjam.snappy.compress(payload))
    return b"NATS/1.0\r\nContent-Encoding: " + encoding.encode() + b"\r\n\r\n", payload
