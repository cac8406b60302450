"""The archives that the reference wrote before 2.15: a tar of its files, read piece by piece.

In it are the stream's configuration (`meta.inf`), its message blocks (`msgs/<n>.blk`) and its
consumers (`obs/<name>/meta.inf`, `o.dat`). Records keep what was deleted; a tombstone behind them
says so. Their own checksums are keyed hashes that are not checked: those of the S2 frames are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from server.jetstream.archive import ArchiveError

BLOCK: Final = 512
SIZE_AT: Final = slice(124, 136)
SUM_AT: Final = slice(148, 156)
KIND_AT: Final = 156
REGULAR: Final = b"0\0"
EXTENDED: Final = b"xg"
FILE_BYTES_MAX: Final = 1 << 30
HEAD: Final = struct.Struct("<IQqH")
HAS_HEADERS: Final = 1 << 31
ERASED: Final = 1 << 63
TOMBSTONE: Final = 1 << 62
CHECKSUM_BYTES: Final = 8
RECORD_BYTES_MAX: Final = 32 << 20
CONSUMER_STATE_MAGIC: Final = 22
CONSUMER_STATE_VERSIONS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Piece:
    name: str
    data: bytes
    is_last: bool


class TarReader:
    """Regular files only; whatever else an archive may hold is refused."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._name = ""
        self._left = 0
        self._padding = 0
        self._extended: bytearray | None = None
        self._long_name = ""
        self.ended = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Pieces of the files in order; ArchiveError when this is no such tar."""
        self._held += data
        while not self.ended:
            if self._left:
                if not self._held:
                    return
                yield from self._content()
            elif self._padding:
                gone = min(self._padding, len(self._held))
                if not gone:
                    return
                del self._held[:gone]
                self._padding -= gone
            elif len(self._held) < BLOCK:
                return
            else:
                head = bytes(self._held[:BLOCK])
                del self._held[:BLOCK]
                yield from self._begin(head)

    def _begin(self, head: bytes) -> Iterator[Piece]:
        if not any(head):
            self.ended = True
            return
        try:
            told = int(head[SUM_AT].strip(b" \0"), 8)
            size = int(head[SIZE_AT].strip(b" \0") or b"0", 8)
        except ValueError:
            raise ArchiveError("invalid tar header") from None
        if told != sum(head) - sum(head[SUM_AT]) + 8 * 32 or size > FILE_BYTES_MAX:
            raise ArchiveError("invalid tar header")
        self._left, self._padding = size, -size % BLOCK
        if head[KIND_AT] in EXTENDED:
            self._extended = bytearray()
            return
        if head[KIND_AT] not in REGULAR:
            raise ArchiveError("unexpected content")
        self._name = self._long_name or head[:100].rstrip(b"\0").decode("utf-8", "replace")
        self._long_name = ""
        if not size:
            yield Piece(self._name, b"", True)

    def _content(self) -> Iterator[Piece]:
        piece = bytes(self._held[: self._left])
        del self._held[: len(piece)]
        self._left -= len(piece)
        if self._extended is None:
            yield Piece(self._name, piece, not self._left)
            return
        self._extended += piece
        if not self._left:
            self._long_name = path_of(bytes(self._extended))
            self._extended = None


def path_of(records: bytes) -> str:
    """The name that an extended header gives the next file; empty when it gives none."""
    for line in records.split(b"\n"):
        _, _, field = line.partition(b" ")
        if field.startswith(b"path="):
            return field[5:].decode("utf-8", "replace")
    return ""


class RecordKind(Enum):
    MESSAGE = 0
    ERASED = 1
    TOMBSTONE = 2


@dataclass(frozen=True, slots=True)
class OldRecord:
    kind: RecordKind
    seq: int
    ts_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


class BlockReader:
    """The records of one block file."""

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def is_whole(self) -> bool:
        return not self._held

    def feed(self, data: bytes) -> Iterator[OldRecord]:
        self._held += data
        at = 0
        while len(self._held) - at >= HEAD.size:
            size, seq, ts_ns, subject_size = HEAD.unpack_from(self._held, at)
            has_headers, size = bool(size & HAS_HEADERS), size & ~HAS_HEADERS
            least = HEAD.size + subject_size + CHECKSUM_BYTES + (4 if has_headers else 0)
            if not least <= size <= RECORD_BYTES_MAX:
                raise ArchiveError("a message block is damaged")
            if len(self._held) - at < size:
                break
            body = bytes(self._held[at + HEAD.size : at + size - CHECKSUM_BYTES])
            at += size
            yield record_of(seq, ts_ns, body, subject_size, has_headers)
        del self._held[:at]


def record_of(seq: int, ts_ns: int, body: bytes, subject_size: int, has_headers: bool) -> OldRecord:
    subject, rest = body[:subject_size], body[subject_size:]
    headers = b""
    if has_headers:
        header_size = int.from_bytes(rest[:4], "little")
        if header_size > len(rest) - 4:
            raise ArchiveError("a message block is damaged")
        headers, rest = rest[4 : 4 + header_size], rest[4 + header_size :]
    kind = RecordKind.MESSAGE
    if seq & TOMBSTONE:
        kind = RecordKind.TOMBSTONE
    elif seq & ERASED or not seq:
        kind = RecordKind.ERASED
    return OldRecord(kind, seq & ~(ERASED | TOMBSTONE), ts_ns, subject, headers, rest)


def resume_seq_of(state: bytes) -> int:
    """Where a consumer goes on: behind what was delivered, or what was acknowledged if not all."""
    if (
        len(state) < 2
        or state[0] != CONSUMER_STATE_MAGIC
        or (state[1] not in CONSUMER_STATE_VERSIONS)
    ):
        raise ArchiveError("a consumer's state is damaged")
    numbers, at = [], 2
    for _ in range(5):
        value = shift = 0
        while True:
            if at == len(state) or shift > 63:
                raise ArchiveError("a consumer's state is damaged")
            byte = state[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        numbers.append(value)
    _, floor, _, delivered, pending = numbers
    if state[1] == 1 and floor > 1:
        delivered += floor - 1
    return (floor if pending else delivered) + 1
