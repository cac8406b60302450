"""One block's bytes: header, footer, index, subject summary (storage/FORMAT.md, section 3)."""

from __future__ import annotations

import bisect
import os
import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from pyspark_jetstream._walk import checksum
from pyspark_jetstream.errors import BlockDamaged, NotUsable
from pyspark_jetstream.sealed import KEY_ADVICE, NotDecompressed, decompress, open_sealed

Skip = Callable[[BlockDamaged], None]

HEAD_BYTES = 64
TRAILER_BYTES = 128
FORMAT_VERSION = 2
FLAG_FRAMED = 1
FOOTER_SPARSE, FOOTER_SUMMARY_COMPLETE, FOOTER_TIMES = 1, 2, 8
TIMES_SLOTS = 256
HEAD = struct.Struct("<8sHHIQQQQQQ")
TRAILER = struct.Struct("<8sIIIIQQqqIIIIQQQQIIQQ")
SUMMARY_ENTRY = struct.Struct("<HIQQ")
FRAME = struct.Struct("<4sBBHIIIIQ")


class Source(Protocol):
    """Bytes by range: a local file, or an object in a store."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    def read(self, start: int, length: int) -> bytes: ...
    def close(self) -> None: ...


class LocalSource:
    """A file; what is read is a copy, for a secure erase may write in any block at any time."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size

    def read(self, start: int, length: int) -> bytes:
        content = os.pread(self._fd, length, start)
        while len(content) < length:
            more = os.pread(self._fd, length - len(content), start + len(content))
            if not more:
                break
            content += more
        return content

    def close(self) -> None:
        os.close(self._fd)


@dataclass(frozen=True)
class Head:
    flags: int
    generation: int
    group: int
    number: int
    first_seq: int
    before_checksum: int  # of the last record before this block

    @property
    def framed(self) -> bool:
        return bool(self.flags & FLAG_FRAMED)


@dataclass(frozen=True)
class Footer:
    flags: int
    slots: int
    messages: int
    first_seq: int
    last_seq: int
    low_ns: int
    high_ns: int
    data_end: int
    index_start: int
    summary_start: int
    summary_size: int
    last_checksum: int  # of the last record, as it was when the block was sealed
    number: int
    generation: int
    frames: int
    body_checksum: int

    @property
    def sparse(self) -> bool:
        return bool(self.flags & FOOTER_SPARSE)


@dataclass(frozen=True)
class Index:
    """Where each record begins; of a dense index slot i is sequence `first_seq` + i."""

    first_seq: int
    offsets: array[int]
    distances: array[int] | None

    def seq_of(self, slot: int) -> int:
        return self.first_seq + (slot if self.distances is None else self.distances[slot])

    def offset_from(self, seq: int) -> int | None:
        """Of the first record at or above `seq`."""
        distance = max(seq - self.first_seq, 0)
        return self.offset_at(
            distance if self.distances is None else bisect.bisect_left(self.distances, distance)
        )

    def offset_at(self, slot: int) -> int | None:
        """Of the first record from `slot` on."""
        while slot < len(self.offsets) and not self.offsets[slot]:
            slot += 1
        return self.offsets[slot] if slot < len(self.offsets) else None

    @cached_property
    def _ascending(self) -> array[int]:
        """The offsets without the holes."""
        return array("I", filter(None, self.offsets))

    def offset_after(self, offset: int) -> int | None:
        """Of the first record behind byte `offset`."""
        at = bisect.bisect_right(self._ascending, offset)
        return self._ascending[at] if at < len(self._ascending) else None


def parse_head(content: bytes, name: str, salt: int, group: int) -> Head:
    """The header, or BlockDamaged, or NotUsable when a newer Martlet wrote it."""
    if len(content) < HEAD_BYTES or content[:8] != b"MARTBLK1":
        raise BlockDamaged(name, 0, "no block header")
    _, version, flags, generation, own, number, first_seq, before, own_salt, check = HEAD.unpack(
        content[:HEAD_BYTES]
    )
    if checksum(content[:56]) != check:
        raise BlockDamaged(name, 56, "the checksum of the header does not hold")
    if version > FORMAT_VERSION:
        raise NotUsable(f"{name} has format version {version}; this reads up to {FORMAT_VERSION}")
    if own != group:
        raise BlockDamaged(name, 16, f"belongs to stream {own:016x}, not {group:016x}")
    if own_salt != salt:
        raise BlockDamaged(name, 48, "belongs to another stream, which had this one's group")
    return Head(flags, generation, own, number, first_seq, before)


def parse_footer(content: bytes, salt: int, group: int) -> Footer | None:
    """From the last 128 bytes of a file; None: this block is not sealed."""
    if len(content) != TRAILER_BYTES or content[:8] != b"MARTFTR1":
        return None
    fields = TRAILER.unpack(content)
    if checksum(content[:120], salt) != fields[-1] or fields[15] != group:
        return None
    return Footer(
        flags=fields[1],
        slots=fields[2],
        messages=fields[3],
        first_seq=fields[5],
        last_seq=fields[6],
        low_ns=fields[7],
        high_ns=fields[8],
        data_end=fields[9],
        index_start=fields[10],
        summary_start=fields[11],
        summary_size=fields[12],
        last_checksum=fields[13],
        number=fields[16],
        generation=fields[17],
        frames=fields[18],
        body_checksum=fields[19],
    )


@dataclass(frozen=True)
class Place:
    """Where a frame lies in the file, with what room, and its `start` in the unframed block."""

    position: int
    room: int
    start: int


class Block:
    """One block opened for reading. Sealed blocks have a footer."""

    def __init__(
        self,
        source: Source,
        salt: int,
        group: int,
        key: bytes | None = None,
        number: int | None = None,
    ) -> None:
        """`number`: which block it has to be; None: whichever it is."""
        self.source, self.salt, self.group, self.key = source, salt, group, key
        self._body: bytes | None = None
        try:
            self.head = parse_head(source.read(0, HEAD_BYTES), source.name, salt, group)
            if number is not None and self.head.number != number:
                reason = f"block {self.head.number:016x} in the place of {number:016x}"
                raise BlockDamaged(source.name, 24, reason)
            self.footer = self._read_footer()
        except BaseException:
            source.close()
            raise

    def _read_footer(self) -> Footer | None:
        start = self.source.size - TRAILER_BYTES
        if start < HEAD_BYTES:
            return None
        footer = parse_footer(self.source.read(start, TRAILER_BYTES), self.salt, self.group)
        if footer is not None and footer.number != self.head.number:
            reason = f"its end is that of block {footer.number:016x}"
            raise BlockDamaged(self.source.name, start + 96, reason)
        return footer

    def __enter__(self) -> Block:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def body(self) -> bytes:
        """Index and summary, checked."""
        assert self.footer is not None
        if self._body is None:
            start, end = self.footer.index_start, self.source.size - TRAILER_BYTES
            body = self.source.read(start, end - start)
            if len(body) != end - start or checksum(body, self.salt) != self.footer.body_checksum:
                reason = "the checksum of the index does not hold"
                raise BlockDamaged(self.source.name, start, reason)
            self._body = body
        return self._body

    def index(self) -> Index | None:
        """None: not sealed, or compacted to nothing."""
        if self.footer is None or not self.footer.slots:
            return None
        size = self.footer.slots * 4
        body = self.body()
        offsets = array("I", body[:size])
        distances = array("I", body[size : 2 * size]) if self.footer.sparse else None
        return Index(self.footer.first_seq, offsets, distances)

    def subjects(self) -> Iterator[bytes] | None:
        """The distinct subjects of the block; None: not known."""
        if self.footer is None or not self.footer.flags & FOOTER_SUMMARY_COMPLETE:
            return None
        start = self.footer.summary_start - self.footer.index_start
        return summary_subjects(self.body()[start : start + self.footer.summary_size])

    def slots_within(self, low_ns: int, high_ns: int) -> tuple[int, int]:
        """The first slot and the one behind the last that may have such times."""
        footer = self.footer
        assert footer is not None
        if not footer.flags & FOOTER_TIMES:
            return 0, footer.slots
        runs = -(-footer.slots // TIMES_SLOTS)
        end = len(self.body()) - 8 * footer.frames
        times = struct.unpack(f"<{2 * runs}q", self.body()[end - 16 * runs : end])
        bounds = zip(times[::2], times[1::2], strict=True)
        some = [at for at, (low, high) in enumerate(bounds) if low <= high_ns and high >= low_ns]
        if not some:
            return 0, 0
        return some[0] * TIMES_SLOTS, min((some[-1] + 1) * TIMES_SLOTS, footer.slots)

    def runs(
        self, start: int = HEAD_BYTES, end: int = 0, skip: Skip | None = None
    ) -> Iterator[tuple[int, bytes]]:
        """Records from byte `start` to `end` (all when 0) of the unframed block: (offset, bytes).

        A run begins at a record, perhaps before `start`. With `skip`, frames that do not hold are
        told to it and left out.
        """
        if self.head.framed:
            yield from self._framed_runs(start, end, skip)
            return
        end = end or (self.footer.data_end if self.footer is not None else self.source.size)
        content = self.source.read(start, end - start)
        if len(content) != end - start:
            failed = BlockDamaged(self.source.name, start + len(content), "the file ends too soon")
            if skip is None:
                raise failed
            skip(failed)
        yield start, content

    def _framed_runs(self, start: int, end: int, skip: Skip | None) -> Iterator[tuple[int, bytes]]:
        places = within(self._frames(end, skip), start, end or 1 << 32)
        if not places:
            return
        first, behind = places[0].position, places[-1].position + places[-1].room
        content = memoryview(self.source.read(first, behind - first))
        run: list[bytes] = []
        base = reached = places[0].start
        for place in places:
            at = place.position - first
            try:
                records = self._open_frame(content[at : at + place.room], place)
            except BlockDamaged as failed:
                if skip is None:
                    raise
                skip(failed)
                continue
            if place.start != reached and run:
                yield base, b"".join(run)
                run = []
            base = base if run else place.start
            run.append(records)
            reached = place.start + len(records)
        if run:
            yield base, b"".join(run)

    def _frames(self, end: int, skip: Skip | None) -> list[Place]:
        """By the table of frames; with `skip`, or when there is none, by their own checksums."""
        if self.footer is None:
            return self._found_frames(end, skip)
        try:
            return self._listed_frames()
        except BlockDamaged as failed:
            if skip is None:
                raise
            skip(failed)
            return self._found_frames(self.footer.data_end, skip)

    def _listed_frames(self) -> list[Place]:
        assert self.footer is not None
        table = struct.unpack(f"<{2 * self.footer.frames}I", self.body()[-8 * self.footer.frames :])
        positions, starts = table[::2], table[1::2]
        behind = (*positions[1:], self.footer.index_start)
        rooms = (after - at for at, after in zip(positions, behind, strict=True))
        return [Place(*one) for one in zip(positions, rooms, starts, strict=True)]

    def _found_frames(self, end: int, skip: Skip | None) -> list[Place]:
        """Without the table. Where one is missing up to `end`, if that is known, is damage."""
        content = self.source.read(0, self.source.size)
        places, reached, position = [], HEAD_BYTES, HEAD_BYTES
        for place, size in find_frames(content, self.salt):
            if place.start != reached:
                self._no_frame(position, reached, skip)
            places.append(place)
            reached, position = place.start + size, place.position + place.room
        if reached < end:
            self._no_frame(position, reached, skip)
        return places

    def _no_frame(self, position: int, start: int, skip: Skip | None) -> None:
        reason = f"no frame with the records from byte {start} of the unframed block on"
        failed = BlockDamaged(self.source.name, position, reason)
        if skip is None:
            raise failed
        skip(failed)

    def check_frames(self) -> None:
        """Every frame's checksum, which takes no key; BlockDamaged when one does not hold."""
        for place in self._listed_frames():
            self._checked_frame(memoryview(self.source.read(place.position, place.room)), place)

    def _checked_frame(self, frame: memoryview, place: Place) -> tuple[int, int, int, memoryview]:
        """Codec, cipher, size of the records, and the content as it is."""

        def damaged(reason: str) -> BlockDamaged:
            return BlockDamaged(self.source.name, place.position, reason)

        if len(frame) < FRAME.size:
            raise damaged("the file ends within a frame")
        magic, codec, cipher, _, size, own_start, plain_size, _, check = FRAME.unpack_from(frame)
        if magic != b"FRM1" or size > len(frame) - FRAME.size or own_start != place.start:
            raise damaged("no frame")
        content = frame[FRAME.size : FRAME.size + size]
        if checksum(content, checksum(frame[:24], self.salt)) != check:
            raise damaged("the checksum of the frame does not hold")
        return codec, cipher, plain_size, content

    def _open_frame(self, frame: memoryview, place: Place) -> bytes:
        """A frame's records."""
        name = self.source.name
        codec, cipher, plain_size, content = self._checked_frame(frame, place)
        plain = bytes(content)
        if cipher:
            if self.key is None:
                raise NotUsable(f"{name} is encrypted: {KEY_ADVICE}")
            where = struct.pack("<QQII", self.group, self.head.number, place.start, plain_size)
            plain = open_sealed(cipher, self.key, plain, b"MARTFRM1" + where, name)
        try:
            records = decompress(codec, plain, plain_size, name)
        except NotDecompressed as error:
            raise BlockDamaged(name, place.position, str(error)) from error
        if len(records) != plain_size:
            reason = f"a frame of {len(records)} bytes instead of {plain_size}"
            raise BlockDamaged(name, place.position, reason)
        return records


def within(places: list[Place], start: int, end: int) -> list[Place]:
    """Those with records from byte `start` to `end` of the unframed block."""
    first = max(bisect.bisect_right(places, start, key=lambda place: place.start) - 1, 0)
    return [place for place in places[first:] if place.start < end]


def find_frames(content: bytes, salt: int) -> Iterator[tuple[Place, int]]:
    """Frames whose checksum holds, by position, and how many bytes of records each has."""
    view = memoryview(content)
    at = content.find(b"FRM1", HEAD_BYTES)
    while 0 <= at <= len(content) - FRAME.size:
        _, _, _, _, size, start, plain_size, _, check = FRAME.unpack_from(content, at)
        body = view[at + FRAME.size : at + FRAME.size + size]
        holds = at % 8 == 0 and len(body) == size
        if holds and checksum(body, checksum(view[at : at + 24], salt)) == check:
            yield Place(at, FRAME.size + size, start), plain_size
            at = content.find(b"FRM1", at + FRAME.size + size)
        else:
            at = content.find(b"FRM1", at + 1)


def summary_subjects(summary: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(summary):
        size = SUMMARY_ENTRY.unpack_from(summary, at)[0]
        at += SUMMARY_ENTRY.size
        yield summary[at : at + size]
        at += size
