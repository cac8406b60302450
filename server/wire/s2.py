"""Streams of S2 frames: read as S2 and Snappy write them, written as Snappy, which S2 reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import cramjam

from server.wire._s2 import crc32c, decode_block

IDENTIFIERS: Final = (b"S2sTwO", b"sNaPpY")
BLOCK_BYTES_MAX: Final = 4 << 20
CHUNK_BYTES_MAX: Final = BLOCK_BYTES_MAX + (BLOCK_BYTES_MAX >> 3) + 64
"""A block that does not shrink grows by a little."""
COMPRESSED: Final = 0x00
PLAIN: Final = 0x01
SKIPPABLE: Final = 0x80
IDENTIFIER: Final = 0xFF
HEAD_BYTES: Final = 4
CHECKSUM_BYTES: Final = 4


class S2Error(ValueError):
    """What came is no stream of S2 frames."""


def compressed(data: bytes) -> bytes:
    """A whole stream of frames; several of them in a row are one stream again."""
    return bytes(cramjam.snappy.compress(data))


def masked(checksum: int) -> int:
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class S2Reader:
    """Takes a stream in pieces of any size; never holds more than one chunk."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._begun = False

    @property
    def is_between_chunks(self) -> bool:
        return not self._held

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The content that is complete with `data`; S2Error when the stream is broken."""
        held = self._held
        held += data
        while len(held) >= HEAD_BYTES:
            size = int.from_bytes(held[1:HEAD_BYTES], "little")
            if held[0] < SKIPPABLE and size > CHUNK_BYTES_MAX:
                raise S2Error("a chunk is too long")
            if len(held) < HEAD_BYTES + size:
                return
            kind, chunk = held[0], bytes(held[HEAD_BYTES : HEAD_BYTES + size])
            del held[: HEAD_BYTES + size]
            content = self._content(kind, chunk)
            if content:
                yield content

    def _content(self, kind: int, chunk: bytes) -> bytes:
        if kind == IDENTIFIER:
            if chunk not in IDENTIFIERS:
                raise S2Error("an unknown kind of stream")
            self._begun = True
            return b""
        if not self._begun:
            raise S2Error("the stream does not begin as one")
        if kind >= SKIPPABLE:
            return b""
        if kind not in (COMPRESSED, PLAIN) or len(chunk) < CHECKSUM_BYTES:
            raise S2Error("an unknown kind of chunk")
        content = chunk[CHECKSUM_BYTES:]
        if kind == COMPRESSED:
            try:
                content = decode_block(content, BLOCK_BYTES_MAX)
            except ValueError as error:
                raise S2Error(str(error)) from error
        if masked(crc32c(content)) != int.from_bytes(chunk[:CHECKSUM_BYTES], "little"):
            raise S2Error("a checksum does not hold")
        return content
