"""The archive inside a stream's snapshot: `NATSARC1`, then entries, the last one all zero.

An entry is the length of its name, a time, a sequence, the sizes of headers and payload (all as
variable-length numbers), the name, the headers and the payload. Numbers are little ends first with
seven bits a byte; the time is signed and zigzag.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"NATSARC1"
NAME_BYTES_MAX: Final = 1 << 20
NUMBER_BYTES_MAX: Final = 10
NUMBERS: Final = 5
SIGN: Final = 1 << 63


class ArchiveError(ValueError):
    """What came is no such archive."""


@dataclass(frozen=True, slots=True)
class Entry:
    name: bytes
    ts_ns: int
    seq: int
    headers: bytes
    payload: bytes

    @property
    def is_end(self) -> bool:
        return not (self.seq or self.ts_ns or self.headers or self.payload)


def number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value: int) -> bytes:
    return number(value << 1 if value >= 0 else (-value << 1) - 1)


def encoded(entry: Entry) -> bytes:
    return b"".join(
        (
            number(len(entry.name)),
            signed(entry.ts_ns),
            number(entry.seq),
            number(len(entry.headers)),
            number(len(entry.payload)),
            entry.name,
            entry.headers,
            entry.payload,
        )
    )


END: Final = encoded(Entry(b"", 0, 0, b"", b""))


class ArchiveReader:
    """Takes an archive in pieces; `size_max` is the most that an entry's content may have."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._held = bytearray()
        self._begun = False
        self.ended = False

    def feed(self, data: bytes) -> Iterator[Entry]:
        """The entries that are complete with `data`; ArchiveError when it is none."""
        self._held += data
        if not self._begun:
            if not MAGIC.startswith(bytes(self._held[: len(MAGIC)])):
                raise ArchiveError("not an archive of a stream")
            if len(self._held) < len(MAGIC):
                return
            self._begun = True
            del self._held[: len(MAGIC)]
        at = 0
        while not self.ended:
            found = self._entry(at)
            if found is None:
                break
            entry, at = found
            self.ended = entry.is_end
            yield entry
        del self._held[:at]

    def _entry(self, at: int) -> tuple[Entry, int] | None:
        numbers = []
        for _ in range(NUMBERS):
            found = self._number(at)
            if found is None:
                return None
            numbers.append(found[0])
            at = found[1]
        name_size, zigzag, seq, header_size, payload_size = numbers
        if name_size > NAME_BYTES_MAX or header_size + payload_size > self._size_max:
            raise ArchiveError(f"sequence {seq} is larger than this server allows")
        sizes = (name_size, header_size, payload_size)
        if len(self._held) - at < sum(sizes):
            return None
        parts = []
        for size in sizes:
            parts.append(bytes(self._held[at : at + size]))
            at += size
        ts_ns = (zigzag >> 1) ^ -(zigzag & 1)
        return Entry(parts[0], ts_ns, seq, parts[1], parts[2]), at

    def _number(self, at: int) -> tuple[int, int] | None:
        value = 0
        for place in range(NUMBER_BYTES_MAX):
            if at == len(self._held):
                return None
            byte = self._held[at]
            at += 1
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if value >= 2 * SIGN:
                    break
                return value, at
        raise ArchiveError("a number is too long")
