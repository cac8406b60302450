"""What a stream holds by its checkpoint and the commit log (FORMAT.md, sections 4 to 6)."""

from __future__ import annotations

import os
import struct
import time
import weakref
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pyspark_jetstream._walk import checksum, scan_log
from pyspark_jetstream.blockfile import FORMAT_VERSION
from pyspark_jetstream.errors import NotUsable

STATE_HEAD = struct.Struct("<8sH6xQQQQQQIIQQI36x")
STATE_HEAD_BYTES = 128
ROW = struct.Struct("<QQQqqIIIIIIIIQQQ16x")
SEGMENT_HEAD = struct.Struct("<8sH6xQ16sQ8xQ")
SEGMENT_HEAD_BYTES = 64
FRAME_HEAD_BYTES = 40
PIECE_BYTES = 4 << 20
TORN_TRIES = 100
TORN_PAUSE_S = 0.002
# Half a second in all, for what is costly to read again: whoever writes there may have to wait for
# its turn on a busy machine.
TORN_PAUSES_S = tuple(0.002 * 2**step for step in range(8))
ROW_SEALED, ROW_FRAMED, ROW_SPARSE, ROW_DEAD, ROW_CUT, ROW_UNREADABLE = 1, 2, 4, 8, 16, 32
FRAME_RECORDS, FRAME_FORGET, FRAME_ERASE, FRAME_DROP, FRAME_CUT, FRAME_GONE = 1, 2, 3, 4, 5, 8
GOES_ON = 256
"""Added to the kind of a frame that counts only with the next one of its group."""


@dataclass(frozen=True)
class Row:
    """One block in a checkpoint's table."""

    number: int
    first_seq: int
    last_seq: int
    low_ns: int
    high_ns: int
    data_end: int
    slots: int
    messages: int
    dead: int
    generation: int
    flags: int
    last_checksum: int  # of its last record, as the footer has it
    before_checksum: int  # of the last record before it, as the header has it
    dead_bits: bytes

    @property
    def ends_with_footer(self) -> bool:
        return bool(self.flags & ROW_SEALED and not self.flags & ROW_CUT)

    def dead_slots(self) -> Iterator[int]:
        for at, bits in enumerate(self.dead_bits):
            if bits:
                yield from (at * 8 + bit for bit in range(8) if bits >> bit & 1)


@dataclass(frozen=True)
class State:
    """A checkpoint."""

    index: int = 0
    floor: int = 1
    last_seq: int = 0
    next_number: int = 0
    rows: tuple[Row, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()


def parse_state(content: bytes, salt: int, group: int, name: str) -> State | None:
    """None when it does not hold."""
    if len(content) < STATE_HEAD_BYTES + 8 or content[:8] != b"MARTSTA1":
        return None
    if checksum(memoryview(content)[:-8], salt) != int.from_bytes(content[-8:], "little"):
        return None
    fields = STATE_HEAD.unpack_from(content)
    if fields[1] > FORMAT_VERSION:
        raise NotUsable(f"{name} has format version {fields[1]}; this reads up to {FORMAT_VERSION}")
    if fields[2] != group:
        return None
    rows, tail = parse_rows(content, count=fields[8])
    lost = struct.unpack_from(f"<{2 * fields[12]}Q", content, tail)
    return State(
        fields[3],
        fields[4],
        fields[5],
        fields[6],
        rows,
        tuple(zip(lost[::2], lost[1::2], strict=True)),
    )


def parse_rows(content: bytes, count: int) -> tuple[tuple[Row, ...], int]:
    rows = []
    tail = STATE_HEAD_BYTES + count * ROW.size
    for at in range(count):
        fields = ROW.unpack_from(content, STATE_HEAD_BYTES + at * ROW.size)
        number, first, last, low, high, end, _, *rest = fields
        slots, messages, dead, generation, flags, _, _, checksum_last, checksum_before = rest
        size = (slots + 7) // 8 if flags & ROW_DEAD else 0
        bits = content[tail : tail + size]
        tail += size
        counts = (slots, messages, dead, generation, flags)
        sums = (checksum_last, checksum_before)
        rows.append(Row(number, first, last, low, high, end, *counts, *sums, bits))
    return tuple(rows), tail


class StateFile:
    """The newer of a stream's two states; read again only when a file has changed."""

    def __init__(self, folder: Path, salt: int, group: int) -> None:
        self._folder, self._salt, self._group = folder, salt, group
        self._seen: tuple[Any, ...] = ()
        self._state = State()

    def read(self) -> State:
        paths = [self._folder / name for name in ("state.a", "state.b")]
        seen = tuple(signature(path) for path in paths)
        if seen != self._seen:
            # The newer by its head first: of a large stream each has megabytes of index.
            tried = map(self._parse, sorted(paths, key=index_in_head, reverse=True))
            found = next((state for state in tried if state is not None), None)
            if found is None and any(seen):
                raise NotUsable(
                    f"{self._folder}: neither state.a nor state.b holds: "
                    "let the server recover this directory first"
                )
            self._state = found or State()
            self._seen = seen
        return self._state

    def _parse(self, path: Path) -> State | None:
        try:
            return parse_state(path.read_bytes(), self._salt, self._group, str(path))
        except FileNotFoundError:
            return None


def index_in_head(path: Path) -> int:
    """What the head of a state claims to contain; it may not hold."""
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(STATE_HEAD_BYTES)
    except FileNotFoundError:
        return -1
    return int.from_bytes(head[24:32], "little")


def signature(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file is replaced or written to."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@dataclass
class Since:
    """What the log says of one stream; contained in its checkpoint up to some index."""

    last_index: int = 0
    cut_index: int = 0
    last_seq: int = 0
    floor: int = 1
    deletes: list[tuple[int, bytes]] = field(default_factory=list)
    deleted: bool = False
    unended: list[tuple[int, int, Any]] = field(default_factory=list)
    """Frames whose end was not read yet."""

    def take(self, index: int, kind: int, payload: Any) -> None:
        if index <= self.last_index:
            return  # from an earlier use of the segment
        self.last_index = index
        self.unended.append((index, kind & ~GOES_ON, payload))
        if not kind & GOES_ON:
            frames, self.unended = self.unended, []
            for frame in frames:
                self._count(*frame)

    def _count(self, index: int, kind: int, payload: Any) -> None:
        if kind == FRAME_RECORDS:
            self.last_seq = max(self.last_seq, payload)
        elif kind in (FRAME_FORGET, FRAME_ERASE):
            self.deletes.append((index, payload))
        elif kind == FRAME_DROP:
            self.floor = max(self.floor, int.from_bytes(payload, "little"))
            self.last_seq = max(self.last_seq, self.floor - 1)
        elif kind == FRAME_CUT:
            self.cut_index = index
            self._cut(int.from_bytes(payload, "little"))
        elif kind == FRAME_GONE:
            self.deleted = True

    def last_known(self, index: int, checkpointed: int) -> int:
        """The last sequence, when the checkpoint of frame `index` says `checkpointed`."""
        if self.cut_index > index:
            return self.last_seq
        return max(self.last_seq, checkpointed)

    def _cut(self, last: int) -> None:
        """All above is gone, and its sequences will be used again."""
        self.last_seq = min(self.last_seq, last)
        self.floor = min(self.floor, last + 1)
        kept = []
        for index, payload in self.deletes:
            seqs = array("Q", payload)
            kept.append((index, array("Q", [seq for seq in seqs if seq <= last]).tobytes()))
        self.deletes = kept

    def dead_after(self, index: int) -> array[int]:
        """Deletes behind the checkpoint of `index`; forgets those that it contains."""
        self.deletes = [entry for entry in self.deletes if entry[0] > index]
        dead: array[int] = array("Q")
        for _, payload in self.deletes:
            dead.frombytes(payload)
        return dead


class LogTail:
    """Follows the commit log of a directory that a server may be writing."""

    def __init__(self, folder: Path, identity: bytes, salt: int) -> None:
        self._folder, self._identity, self._salt = folder, identity, salt
        self._places: dict[int, tuple[int, bool]] = {}  # segment: next byte, finished
        self._held: dict[int, int] = {}  # segment: descriptor, so that its inode is not used again
        self.groups: dict[int, Since] = {}
        weakref.finalize(self, close_all, self._held)

    def refresh(self) -> None:
        """Read what was written since the last time."""
        paths = sorted(self._folder.glob("*.seg"), key=lambda path: int(path.stem, 16))
        numbers = [int(path.stem, 16) for path in paths]
        if self._places and self._is_another(paths):
            # A clean stop or a start has removed what was there: the checkpoints contain it. From
            # then on segments and a stream's frames may be numbered anew, and a deleted one's group
            # be given again.
            self.groups.clear()
            self._keep([])
        for number, path in zip(numbers, paths, strict=True):
            at, finished = self._places.get(number, (SEGMENT_HEAD_BYTES, False))
            if not finished:
                self._follow(path, number, at, is_last=number == numbers[-1])
        self._keep(numbers)

    def _is_another(self, paths: list[Path]) -> bool:
        """Whether no segment that we know is there, or a number that we know is another file."""
        known = [(path, self._held[int(path.stem, 16)]) for path in paths
                 if int(path.stem, 16) in self._held]  # fmt: skip
        return not known or any(not is_same_file(path, held) for path, held in known)

    def _keep(self, numbers: list[int]) -> None:
        self._places = {
            number: self._places[number] for number in numbers if number in self._places
        }
        for number in self._held.keys() - set(numbers):
            os.close(self._held.pop(number))

    def _follow(self, path: Path, number: int, at: int, is_last: bool) -> None:
        try:
            with path.open("rb") as file:
                head = file.read(SEGMENT_HEAD_BYTES)
                if not is_segment(head, path, number, self._identity, self._salt):
                    return  # being made
                if number not in self._held:
                    self._held[number] = os.dup(file.fileno())
                at, finished = self._read_frames(file, number << 32, at, not is_last)
        except FileNotFoundError:
            return  # retired meanwhile: every checkpoint contains it
        self._places[number] = (at, finished or not is_last)

    def _read_frames(self, file: BinaryIO, base: int, at: int, resync: bool) -> tuple[int, bool]:
        """In pieces: a segment is preallocated, and most of the current one is still to come.

        Behind the newest frame are zeros or an earlier use of the file. There this ends, whatever
        was written meanwhile: a busy server writes more in the time that each look takes.
        """
        piece, patience = PIECE_BYTES, TORN_TRIES
        size = os.fstat(file.fileno()).st_size
        while True:
            file.seek(at)
            content = file.read(piece)
            whole = len(content) < piece
            frames, read, finished = scan_log(content, base + at, self._salt, 0, resync and whole)
            for group, index, kind, payload in frames:
                self.groups.setdefault(group, Since()).take(index, kind, payload)
            at += read
            rest = content[read:]
            if finished or (whole and resync):
                return at, finished
            if resync or not (whole or is_no_frame(rest, size - at)):
                piece = piece if frames else 2 * piece
            elif not self._torn(rest, base + at):
                return at, False
            else:
                time.sleep(TORN_PAUSE_S)
                patience -= 1
                resync = patience == 0  # it does not mend: damage, which the server's start reports

    def _torn(self, content: bytes, position: int) -> bool:
        """Whether news follow what does not hold: a secure erase is writing just here."""
        frames, _, _ = scan_log(content, position, self._salt, 8, True)
        return any(
            index > self.groups.get(group, Since()).last_index for group, index, _, _ in frames
        )


def is_same_file(path: Path, descriptor: int) -> bool:
    """True as well when there is none by now."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return True


def close_all(descriptors: dict[int, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def is_no_frame(rest: bytes, left: int) -> bool:
    """Of what does not hold: no frame goes on behind `rest` in the `left` bytes of the segment."""
    length = int.from_bytes(rest[:4], "little") + FRAME_HEAD_BYTES
    return length <= len(rest) or length > left


def is_segment(head: bytes, path: Path, number: int, identity: bytes, salt: int) -> bool:
    """False: not a segment of this directory, or not begun."""
    if len(head) < SEGMENT_HEAD_BYTES or head[:8] != b"MARTLOG1":
        return False
    _, version, own, owner, _, check = SEGMENT_HEAD.unpack(head)
    if version > FORMAT_VERSION:
        raise NotUsable(f"{path} has format version {version}; this reads up to {FORMAT_VERSION}")
    return bool(own == number and owner == identity and checksum(head[:56], salt) == check)
