"""A reader of data directories, written from storage/FORMAT.md alone: nothing of `storage` is used.

It shows that the document is enough. Sections are those of the document. It reads what a stop or a
kill left; damage it refuses in words instead of working around it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cramjam
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from xxhash import xxh64_intdigest

Message = tuple[int, int, bytes, bytes, bytes]
VERSION = 2
U64 = 1 << 64
MESSAGE, SKIP, ERASED = 1, 2, 3
RECORDS, FORGET, ERASE, DROP, CUT, MARK, GONE, META = 1, 2, 3, 4, 5, 6, 8, 10
ROW_SEALED, ROW_SPARSE, ROW_HAS_DEAD, ROW_CUT = 1, 4, 8, 16


class NotWhole(Exception):
    """Something is not as FORMAT.md says."""


def require(holds: bool, what: object) -> None:
    if not holds:
        raise NotWhole(str(what))


def number(content: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(content[at : at + size], "little")


def checksum(content: bytes, seed: int = 0) -> int:
    return xxh64_intdigest(content, seed % U64)


def check_version(content: bytes, magic: bytes, what: object) -> None:
    require(content[:8] == magic, f"{what}: no {magic.decode()}")
    require(1 <= number(content, 8, 2) <= VERSION, f"{what}: a newer version")


# -- section 8: encryption -------------------------------------------------------------------------


def opened(key: bytes, cipher: int, content: bytes, context: bytes) -> bytes:
    nonce, rest = content[:12], content[12:]
    if cipher == 1:
        return ChaCha20Poly1305(key[:32]).decrypt(nonce, rest, context)
    require(cipher == 2, f"cipher {cipher}")
    return AESGCM(key[32:]).decrypt(nonce, rest, context)


def u64(value: int) -> bytes:
    return value.to_bytes(8, "little")


def u32(value: int) -> bytes:
    return value.to_bytes(4, "little")


# -- section 2: records ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Record:
    kind: int
    seq: int
    count: int
    """Of a skip; 1 for the others."""
    checksum: int
    message: Message | None


def record_at(content: bytes, at: int, salt: int, key: bytes) -> tuple[Record, int]:
    """The record and its size."""
    size = number(content, at, 4)
    raw = content[at : at + size]
    require(36 <= size == len(raw), f"a record of {size} bytes at {at}")
    found = number(raw, size - 8)
    require(checksum(raw[:-8], salt) == found, f"the record at {at}")
    kind, cipher, seq, body = raw[4], raw[5], number(raw, 8), raw[28:-8]
    if kind == SKIP:
        return Record(kind, seq, number(body, 0), found, None), size
    if kind == ERASED:
        return Record(kind, seq, 1, found, None), size
    require(kind == MESSAGE, f"record kind {kind}")
    if cipher:
        body = opened(key, cipher, body, raw[:28])
    subject_end = number(raw, 6, 2)
    headers_end = subject_end + number(raw, 24, 4)
    parts = body[:subject_end], body[subject_end:headers_end], body[headers_end:]
    time = int.from_bytes(raw[16:24], "little", signed=True)
    return Record(kind, seq, 1, found, (seq, time, *parts)), size


def records_in(
    content: bytes, at: int, end: int, salt: int, key: bytes
) -> Iterator[tuple[int, Record]]:
    while at < end:
        record, size = record_at(content, at, salt, key)
        yield at, record
        at += size
    require(at == end, f"records up to {end}")


# -- sections 5 and 6: meta and state --------------------------------------------------------------


@dataclass(frozen=True)
class Meta:
    group: int
    salt: int
    settings: dict[str, Any]
    key: bytes


def read_meta(content: bytes, master: bytes) -> Meta:
    check_version(content, b"MARTMETA", "meta")
    require(checksum(content[:-8]) == number(content, len(content) - 8), "meta")
    group, salt = number(content, 16), number(content, 24)
    if number(content, 8, 2) == 1:
        return Meta(group, salt, json.loads(content[36 : 36 + number(content, 32, 4)]), b"")
    cipher, label_size, size = content[10], number(content, 124, 4), number(content, 128, 4)
    key = opened(master, cipher, content[32:124], b"MARTKEY1" + u64(group) + u64(salt))
    sealed = content[132 + label_size : 132 + label_size + size]
    return Meta(group, salt, json.loads(opened(key, cipher, sealed, b"MARTMETA" + u64(group))), key)


Row = namedtuple(
    "Row",
    "number first_seq last_seq min_time max_time data_end capacity slots messages dead_count "
    "generation flags skips counted last_checksum prior_checksum dead",
)


@dataclass(frozen=True)
class State:
    index: int = 0
    floor: int = 1
    last_seq: int = 0
    rows: tuple[Row, ...] = ()


def read_state(folder: Path, meta: Meta) -> State:
    """The newer of the two that hold."""
    found = [State()]
    for name in ("state.a", "state.b"):
        content = (folder / name).read_bytes() if (folder / name).exists() else b""
        if content and checksum(content[:-8], meta.salt) == number(content, len(content) - 8):
            check_version(content, b"MARTSTA1", name)
            require(number(content, 16) == meta.group, name)
            found.append(parse_state(content))
    return max(found, key=lambda state: state.index)


def parse_state(content: bytes) -> State:
    count = number(content, 64, 4)
    dead_at = 128 + count * 112
    rows = []
    for at in range(128, dead_at, 112):
        row = Row(*struct.unpack_from("<QQQqqIIIIIIIIQQQ", content, at), dead=b"")
        size = (row.slots + 7) // 8 if row.flags & ROW_HAS_DEAD else 0
        rows.append(row._replace(dead=content[dead_at : dead_at + size]))
        dead_at += size
    return State(number(content, 24), number(content, 32), number(content, 40), tuple(rows))


# -- sections 3 and 7: blocks ----------------------------------------------------------------------

DECOMPRESSORS: dict[int, Callable[[bytes, int], bytes]] = {
    0: lambda content, size: content,
    1: lambda content, size: bytes(cramjam.zstd.decompress(content)),
    2: lambda content, size: bytes(cramjam.snappy.decompress_raw(content)),
    3: lambda content, size: bytes(cramjam.lz4.decompress_block(content, output_len=size)),
}


@dataclass
class Stream:
    meta: Meta
    state: State
    messages: dict[int, Message] = field(default_factory=dict)
    skips: dict[int, int] = field(default_factory=dict)
    floor: int = 1
    last_seq: int = 0
    index: int = 0
    missing: list[Row] = field(default_factory=list)
    forgotten: set[int] = field(default_factory=set)

    def add(self, record: Record) -> None:
        if record.kind == SKIP:
            self.skips[record.seq] = record.count
        elif record.message is not None:
            self.messages[record.seq] = record.message

    def forget(self, seq: int) -> None:
        self.messages.pop(seq, None)
        self.forgotten.add(seq)

    def check_missing(self) -> None:
        """A file goes when nothing in it lives any more, and the checkpoint may not know yet."""
        for row in self.missing:
            if self.floor <= row.first_seq and row.last_seq <= self.last_seq:
                gone = self.forgotten.intersection(range(row.first_seq, row.last_seq + 1))
                require(
                    len(gone) >= row.messages - row.dead_count, f"block {row.number} is missing"
                )

    def cut(self, last: int) -> None:
        self.last_seq = min(self.last_seq, last)
        self.messages = {seq: m for seq, m in self.messages.items() if seq <= last}
        self.skips = {s: min(n, last + 1 - s) for s, n in self.skips.items() if s <= last}

    def drop(self, floor: int) -> None:
        self.floor = max(self.floor, floor)
        self.last_seq = max(self.last_seq, self.floor - 1)
        self.messages = {seq: m for seq, m in self.messages.items() if seq >= self.floor}


def unframed(content: bytes, row: Row, meta: Meta) -> bytes:
    """The unframed block: its header's room, then the records of all frames."""
    out = bytearray(64)
    trailer = len(content) - 128
    for at in range(trailer - 8 * number(content, trailer + 108, 4), trailer, 8):
        position, start = number(content, at, 4), number(content, at + 4, 4)
        head = content[position : position + 32]
        size, plain_size = number(head, 8, 4), number(head, 16, 4)
        packed = content[position + 32 : position + 32 + size]
        seed = checksum(head[:24], meta.salt)
        require(head[:4] == b"FRM1" and checksum(packed, seed) == number(head, 24), "frame")
        require(start == number(head, 12, 4) == len(out), f"frame at {start}, not {len(out)}")
        if head[5]:
            context = b"MARTFRM1" + u64(meta.group) + u64(row.number) + u32(start) + u32(plain_size)
            packed = opened(meta.key, head[5], packed, context)
        out += DECOMPRESSORS[head[4]](packed, plain_size)
        require(len(out) == start + plain_size, f"frame at {start} uncompressed")
    return bytes(out)


def footer_index(content: bytes, meta: Meta) -> dict[int, int]:
    """Of each slot that has a record: its sequence and the offset, by the footer."""
    trailer = content[-128:]
    require(trailer[:8] == b"MARTFTR1", "footer")
    require(checksum(trailer[:120], meta.salt) == number(trailer, 120), "trailer")
    start, slots, first = number(trailer, 60, 4), number(trailer, 12, 4), number(trailer, 24)
    require(checksum(content[start:-128], meta.salt) == number(trailer, 112), "index")
    offsets = [number(content, start + 4 * slot, 4) for slot in range(slots)]
    distances = list(range(slots))
    if number(trailer, 8, 4) & 1:
        distances = [number(content, start + 4 * (slots + slot), 4) for slot in range(slots)]
    return {first + far: at for far, at in zip(distances, offsets, strict=True) if at}


def dead_sequences(row: Row, sequences: list[int], sparse: bool) -> set[int]:
    """What the dead bits say; `sequences` are those of the records, in order."""
    slots = sequences if sparse else range(row.first_seq, row.first_seq + row.slots)
    bits = int.from_bytes(row.dead, "little")
    return {seq for slot, seq in enumerate(slots) if bits >> slot & 1}


def read_block(folder: Path, row: Row, meta: Meta) -> list[Record]:
    """The records that live, and skips, of one block."""
    path = folder / f"{row.number:016x}.blk"
    content = path.read_bytes()
    check_version(content, b"MARTBLK1", path)
    require(checksum(content[:56]) == number(content, 56), f"{path}: header")
    wanted = [meta.group, row.number, row.first_seq, row.prior_checksum, meta.salt]
    require([number(content, at) for at in range(16, 56, 8)] == wanted, f"{path}: another block")
    require(number(content, 12, 4) >= row.generation, f"{path}: an older copy")
    sparse, slots, end, indexed = bool(row.flags & ROW_SPARSE), row.slots, row.data_end, None
    if row.flags & ROW_SEALED and not row.flags & ROW_CUT:
        indexed = footer_index(content, meta)
        trailer = content[-128:]
        require(number(trailer, 72) == row.last_checksum, f"{path}: ends otherwise")
        sparse, slots, end = bool(trailer[8] & 1), number(trailer, 12, 4), number(trailer, 56, 4)
    data = unframed(content, row, meta) if number(content, 10, 2) & 1 else content
    records = dict(records_in(data, 64, end, meta.salt, meta.key))
    if indexed is not None:
        require({r.seq: at for at, r in records.items()} == indexed, f"{path}: index")
    sequences = [record.seq for record in records.values()]
    # A file rewritten since then with other slots has left out what was dead.
    dead = dead_sequences(row, sequences, sparse) if slots == row.slots else set()
    return [record for record in records.values() if record.seq not in dead]


# -- section 4: the log ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    kind: int
    group: int
    index: int
    payload: bytes
    goes_on: bool


def read_segment(path: Path, identity: bytes, salt: int) -> Iterator[Frame]:
    content = path.read_bytes()
    check_version(content, b"MARTLOG1", path)
    require(checksum(content[:56], salt) == number(content, 56), path)
    require(content[24:40] == identity, f"{path}: of another directory")
    at, base = 64, number(content, 16) << 32
    while at + 40 <= len(content):
        size, kind = number(content, at, 4), content[at + 4]
        payload = content[at + 40 : at + 40 + size]
        seed = checksum(content[at : at + 32], salt + base + at)
        if kind == 0 or checksum(payload, seed) != number(content, at + 32):
            return  # the end of what was written
        group, index = number(content, at + 8), number(content, at + 16)
        yield Frame(kind, group, index, payload, content[at + 5] == 1)
        at = (at + 40 + size + 7) & ~7


def read_log(folder: Path, identity: bytes, salt: int) -> list[Frame]:
    paths = [path for path in folder.iterdir() if path.suffix in (".seg", ".kept")]
    frames: list[Frame] = []
    for path in sorted(paths, key=lambda path: int(path.stem, 16)):
        frames.extend(read_segment(path, identity, salt))
    # The end of a whole that was never written to its end does not count.
    ends = {frame.group: at for at, frame in enumerate(frames) if not frame.goes_on}
    return [frame for at, frame in enumerate(frames) if at <= ends.get(frame.group, -1)]


def replay(stream: Stream, frame: Frame) -> None:
    if frame.index <= stream.index:
        return
    require(frame.index == stream.index + 1, f"frame {frame.index} after {stream.index}")
    stream.index = frame.index
    values = [number(frame.payload, at) for at in range(0, len(frame.payload), 8)]
    if frame.kind == RECORDS:
        meta = stream.meta
        for _, record in records_in(frame.payload, 0, len(frame.payload), meta.salt, meta.key):
            stream.last_seq = record.seq + record.count - 1
            stream.add(record)
    elif frame.kind == FORGET:
        for seq in values:
            stream.forget(seq)
    elif frame.kind == ERASE:
        stream.forget(values[0])
    elif frame.kind == DROP:
        stream.drop(values[0])
    elif frame.kind == CUT:
        stream.cut(values[0])


# -- the whole -------------------------------------------------------------------------------------


def read_stream(folder: Path, meta: Meta) -> Stream:
    """As of its checkpoint."""
    state = read_state(folder, meta)
    stream = Stream(meta, state, index=state.index, last_seq=state.last_seq)
    for row in state.rows:
        if not (folder / f"{row.number:016x}.blk").exists():
            stream.missing.append(row)
        elif row.data_end > 64:
            for record in read_block(folder, row, meta):
                if record.seq <= row.last_seq:
                    stream.add(record)
    stream.cut(state.last_seq)
    stream.drop(state.floor)
    return stream


def read_directory(path: Path, key: str = "") -> dict[int, Stream]:
    """All streams, by group."""
    content = (path / "directory").read_bytes()
    check_version(content, b"MARTDIR1", path)
    require(checksum(content[:56]) == number(content, 56), path)
    identity, salt = content[16:32], number(content, 32)
    parameters: dict[str, Any] = {"n": 16384, "r": 8, "p": 1, "dklen": 64}
    master = hashlib.scrypt(key.encode(), salt=identity, **parameters) if key else b""
    frames = read_log(path / "log", identity, salt)
    gone = {frame.group for frame in frames if frame.kind == GONE}
    metas = {frame.group: frame.payload for frame in frames if frame.kind == META}
    for folder in (path / "streams").iterdir():
        if not folder.name.startswith(".") and int(folder.name, 16) not in metas:
            metas[int(folder.name, 16)] = (folder / "meta").read_bytes()
    streams = {
        group: read_stream(path / "streams" / f"{group:016x}", read_meta(meta, master))
        for group, meta in metas.items()
        if group not in gone
    }
    for frame in frames:
        if frame.group in streams:
            replay(streams[frame.group], frame)
    for stream in streams.values():
        stream.check_missing()
    return streams
