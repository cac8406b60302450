"""A data directory seen from outside, beside the server that writes it: no lock, no change.

A view is taken in the order log, checkpoint, blocks: what the log no longer has is in the
checkpoint that is read after it, and every block file is at least as new as the checkpoint that
names it. A file that is not there is believed only when the log was read behind that.
"""

from __future__ import annotations

import bisect
import struct
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark_jetstream._walk import checksum, walk
from pyspark_jetstream.blockfile import (
    FORMAT_VERSION,
    HEAD_BYTES,
    TRAILER_BYTES,
    Block,
    Footer,
    LocalSource,
)
from pyspark_jetstream.chain import check_fits
from pyspark_jetstream.committed import (
    ROW_CUT,
    ROW_SPARSE,
    ROW_UNREADABLE,
    TORN_PAUSE_S,
    TORN_TRIES,
    LogTail,
    Row,
    Since,
    State,
    StateFile,
    signature,
)
from pyspark_jetstream.errors import BlockDamaged, NotUsable
from pyspark_jetstream.meta import Meta, TornMeta, parse_meta
from pyspark_jetstream.sealed import master_key
from pyspark_jetstream.view import BlockView, StreamView, Unreadable

IDENTITY = struct.Struct("<8sH6x16sQ16xQ")
LAST = 0xFFFFFFFFFFFFFFFF
LOOKS_MAX = 10
"""At a stream whose blocks go while they are looked at."""
PLACES = ("", "data", "jetstream/data", "jetstream")


class NotBegun(Exception):
    """A block whose file was made a moment ago: its header is still on its way."""


def find_directory(path: Path) -> tuple[Path, int | None]:
    """The data directory that `path` means, and the stream when `path` is one stream's folder."""
    if (path / "meta").exists() and path.parent.name == "streams":
        return path.parent.parent, int(path.name, 16)
    for place in PLACES:
        if (path / place / "directory").exists():
            return path / place, None
    raise NotUsable(
        f"{path} is no Martlet data directory: "
        "no `directory` file there nor under data/ or jetstream/"
    )


def read_identity(path: Path) -> tuple[bytes, int]:
    content = (path / "directory").read_bytes()
    if len(content) != IDENTITY.size or content[:8] != b"MARTDIR1":
        raise NotUsable(f"{path}/directory is not that of a Martlet data directory")
    _, version, identity, salt, check = IDENTITY.unpack(content)
    if checksum(content[:56]) != check:
        raise NotUsable(f"{path}/directory is damaged: its checksum does not hold")
    if version > FORMAT_VERSION:
        raise NotUsable(
            f"{path} has format version {version}; this reads up to {FORMAT_VERSION}: "
            "install the pyspark_jetstream of the Martlet that wrote it"
        )
    return identity, salt


@dataclass(frozen=True)
class Extent:
    """How far the records of one block file go."""

    generation: int
    first_seq: int
    last_seq: int
    low_ns: int
    high_ns: int
    end: int
    messages: int
    footer: Footer | None


class StreamFiles:
    """One stream's folder, looked at again and again."""

    def __init__(self, folder: Path, master: Callable[[], bytes | None]) -> None:
        self.folder = folder
        self._master = master
        self._meta: Meta | None = None
        self._meta_seen: object = None
        self._torn_seen: object = None
        self._state: StateFile | None = None
        self._extents: dict[int, tuple[object, Extent]] = {}
        self._absent: set[int] = set()  # blocks that the last view found no file of
        self._judged: set[int] = set()  # those of them for which the log was read once more

    def meta(self, with_names: bool = True) -> Meta:
        seen = signature(self.folder / "meta")
        if self._meta is None or seen != self._meta_seen:
            meta = self._read_meta(with_names)
            if self._meta is not None and meta.salt != self._meta.salt:
                self._extents.clear()  # the group of a deleted stream, given again
                self._judged.clear()
            self._meta = meta
            self._meta_seen = seen
            self._state = StateFile(self.folder, self._meta.salt, self._meta.group)
        return self._meta

    def _read_meta(self, with_names: bool) -> Meta:
        """Patient with one that is being written. FileNotFoundError: the stream has not begun."""
        path = self.folder / "meta"
        tries = 1 if signature(path) == self._torn_seen else TORN_TRIES
        for left in reversed(range(tries)):
            try:
                return parse_meta(path.read_bytes(), str(path), self._master, with_names)
            except TornMeta:
                if not left and any(self.folder.glob("state.[ab]")):
                    self._torn_seen = signature(path)
                    raise
            if left:
                time.sleep(TORN_PAUSE_S)
        raise FileNotFoundError(path)

    def view(self, meta: Meta, since: Since) -> StreamView:
        """Right when its `is_final` says so, else to be taken anew, once the log was read again."""
        assert self._state is not None
        self._absent = set()
        state = self._state.read()
        floor = max(state.floor, since.floor)
        last = max(since.last_known(state.index, state.last_seq), floor - 1)
        dead = since.dead_after(state.index)
        view = StreamView(meta.account, meta.stream, meta.group, meta.salt, floor, meta.key)
        cut = since.cut_index > 0 or any(row.flags & ROW_CUT for row in state.rows)
        found = list(self._blocks(state, view, last, dead))
        blocks = found if cut else up_to_open(found)
        view.lost = [span for span in state.lost if span[1] >= floor]
        view.damaged = bounded(view.damaged, blocks, floor, last)
        view.blocks = clip(blocks, floor)
        missed = [last_missed for _, _, last_missed in view.missing]
        missed += [block.last_seq for block in view.damaged]
        view.last_seq = max((floor - 1, *(block.last_seq for block in blocks), *missed))
        # What was dropped or skipped counts as seen, what is on its way to a block does not.
        if since.last_index <= state.index and len(blocks) == len(found):
            view.last_seq = max(view.last_seq, last)
        view.claimed_last = max(last, view.last_seq)
        self._extents = {
            block.number: self._extents[block.number]
            for block in blocks
            if block.number in self._extents
        }
        return view

    def is_final(self) -> bool:
        """Whether the log that the last view goes by is newer than all absences it met.

        A file goes only behind a durable frame that says so: the log may have got it after it was
        read. Numbers are not used again, so one more reading of the log is enough for each.
        """
        before, self._judged = self._judged, self._absent
        return self._absent <= before

    def _blocks(
        self, state: State, view: StreamView, last: int, dead: array[int]
    ) -> Iterator[BlockView]:
        known = {row.number: row for row in state.rows}
        dead_seqs = sorted(set(dead))
        files = self._files(state)
        alive = {
            row.number
            for row in state.rows
            if row.last_seq >= view.floor and messages_left(row, dead_seqs) > 0
        }
        view.held = frozenset(alive.union(number for number, _ in files))
        for number, path in files:
            row = known.pop(number, None)
            if row is None and number < state.next_number:
                continue  # removed; its file goes in a moment
            try:
                block = self._block(path, number, row, view, last)
                if block is not None:
                    dead_of = self._dead_of(path, row, block, view)
                    block.dead = pack(dead_of | between(dead_seqs, block))
                    yield block
            except FileNotFoundError:
                self._absent.add(number)
                if row is not None:
                    known[number] = row  # judged below, as if it had not been listed
            except NotBegun:
                break  # nor has any behind it
            except BlockDamaged as failed:
                if row is None or is_missed(row, view, dead_seqs):
                    view.damaged.append(unreadable(number, row, failed))
        for row in known.values():
            if is_missed(row, view, dead_seqs):
                self._absent.add(row.number)
                view.missing.append((row.number, row.first_seq, row.last_seq))

    def _files(self, state: State) -> list[tuple[int, Path]]:
        """By number. A listing may miss a file that was made meanwhile, but show a later one."""
        found = {int(path.stem, 16): path for path in self.folder.glob("*.blk")}
        for number in range(state.next_number, max(found, default=0)):
            path = self.folder / f"{number:016x}.blk"
            if number in found:
                continue
            if path.exists():
                found[number] = path
            else:
                self._absent.add(number)
        return sorted(found.items())

    def _block(
        self, path: Path, number: int, row: Row | None, view: StreamView, last: int
    ) -> BlockView | None:
        """None: nothing that may be read."""
        if row is not None and row.flags & ROW_UNREADABLE:
            return None
        extent = self._extent(path, number, row, view)
        if extent is None:
            return None
        end_seq = min(extent.last_seq, last)
        if row is not None and row.flags & ROW_CUT:
            end_seq = min(end_seq, row.last_seq)
        return BlockView(
            location=str(path),
            number=number,
            generation=extent.generation,
            first_seq=extent.first_seq,
            last_seq=end_seq,
            low_ns=extent.low_ns,
            high_ns=extent.high_ns,
            data_end=extent.end,
            messages=extent.messages,
            sealed=extent.footer is not None or (row is not None and row.ends_with_footer),
            file_bytes=path.stat().st_size,
        )

    def _extent(self, path: Path, number: int, row: Row | None, view: StreamView) -> Extent | None:
        seen = signature(path)
        before = self._extents.get(number)
        if before is not None and before[0] == seen and before[1].footer is not None:
            return before[1]
        with self._open(path, number, row, view) as block:
            if block.footer is not None:
                found: Extent | None = sealed_extent(block.footer)
            elif row is not None and row.ends_with_footer:
                found = extent_without_footer(block, row)
            else:
                found = open_extent(block, before, row)
        if found is not None:
            self._extents[number] = (seen, found)
        return found

    def _open(self, path: Path, number: int, row: Row | None, view: StreamView) -> Block:
        """Once its header holds. Of a block behind the checkpoint it may be on its way."""
        for left in reversed(range(TORN_TRIES)):
            source = LocalSource(str(path))
            if row is None and not any(source.read(0, HEAD_BYTES)):
                source.close()
                raise NotBegun
            try:
                block = Block(source, view.salt, view.group, view.key, number)
                break
            except BlockDamaged:
                if row is not None or not left:
                    raise
            time.sleep(TORN_PAUSE_S)
        if row is not None:
            try:
                check_fits(block, row)
            except BlockDamaged:
                block.source.close()
                raise
        return block

    def _dead_of(self, path: Path, row: Row | None, block: BlockView, view: StreamView) -> set[int]:
        """The checkpoint's dead bits as sequences. Of a sparse row only the file knows them."""
        if row is None or not row.dead_bits:
            return set()
        if not row.flags & ROW_SPARSE:
            return {row.first_seq + slot for slot in row.dead_slots()}
        # The file may be another than a moment ago: what it is now goes with its own index.
        with Block(LocalSource(str(path)), view.salt, view.group, view.key, block.number) as opened:
            if rewritten_since(opened, row):
                return set()
            seqs = sequences_by_slot(opened)
            return {seqs[slot] for slot in row.dead_slots() if slot < len(seqs)}


def rewritten_since(block: Block, row: Row) -> bool:
    """Rewritten behind the checkpoint: what was dead is not in it any more."""
    footer = block.footer
    return footer is not None and not row.flags & ROW_CUT and footer.slots != row.slots


def is_missed(row: Row, view: StreamView, dead_seqs: list[int]) -> bool:
    """Whether messages are gone with the block: all of them may have been deleted before."""
    readable = row.last_seq >= view.floor and not row.flags & ROW_UNREADABLE
    return readable and messages_left(row, dead_seqs) > 0


def messages_left(row: Row, dead_seqs: list[int]) -> int:
    gone = row.dead + count_between(dead_seqs, row.first_seq, row.last_seq)
    return row.messages - gone


def unreadable(number: int, row: Row | None, failed: BlockDamaged) -> Unreadable:
    first, last = (row.first_seq, row.last_seq) if row is not None else (0, 0)
    return Unreadable(number, first, last, failed.words)


def bounded(
    damaged: list[Unreadable], blocks: list[BlockView], floor: int, last: int
) -> list[Unreadable]:
    """Of one behind the checkpoint the blocks beside it tell the sequences."""
    found = []
    for one in damaged:
        if not one.last_seq:
            before = (block.last_seq for block in blocks if block.number < one.number)
            behind = (block.first_seq for block in blocks if block.number > one.number)
            first, end = max((floor - 1, *before)) + 1, min((last + 1, *behind))
            one = replace(one, first_seq=first, last_seq=end - 1)
        if floor <= one.last_seq >= one.first_seq:
            found.append(one)
    return found


def sequences_by_slot(block: Block) -> list[int]:
    """What the slots of the block mean, by its index or its records."""
    try:
        index = block.index()
    except BlockDamaged:
        index = None
    if index is None:
        return sequences_of(block)
    return [index.seq_of(slot) for slot in range(len(index.offsets))]


def sequences_in(block: Block) -> list[int]:
    """Of its messages, whether it has a footer or not; those that are deleted among them."""
    index = block.index()
    if index is None:
        return sequences_of(block) if block.footer is None else []
    slots = range(len(index.offsets))
    return [index.seq_of(slot) for slot in slots if index.offsets[slot]]


def sequences_of(block: Block) -> list[int]:
    """The sequence of each record of a block without a footer, in the order of a sparse index."""
    ((_, content),) = block.runs()
    end, *_ = walk(content, block.salt, 0, 0xFFFFFFFFFFFFFFFF)
    seqs, at = [], 0
    while at < end:
        size = int.from_bytes(content[at : at + 4], "little")
        seqs.append(int.from_bytes(content[at + 8 : at + 16], "little"))
        at += size
    return seqs


def sealed_extent(footer: Footer) -> Extent:
    return Extent(
        generation=footer.generation,
        first_seq=footer.first_seq,
        last_seq=footer.last_seq,
        low_ns=footer.low_ns,
        high_ns=footer.high_ns,
        end=footer.data_end,
        messages=footer.messages,
        footer=footer,
    )


def extent_without_footer(block: Block, row: Row) -> Extent:
    """The footer does not hold: then the block is what the checkpoint says, if it is still that."""
    if block.head.generation != row.generation:
        at = max(block.source.size - TRAILER_BYTES, 0)
        raise BlockDamaged(block.source.name, at, "the end of the sealed block does not hold")
    return Extent(
        generation=row.generation,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        low_ns=row.low_ns,
        high_ns=row.high_ns,
        end=row.data_end,
        messages=row.messages,
        footer=None,
    )


def open_extent(
    block: Block, before: tuple[object, Extent] | None, row: Row | None
) -> Extent | None:
    """Of a block that is still written to: up to the last record that holds, on from what is known.

    That is `before`, else what the checkpoint says.
    """
    start, low, high, messages, last_seq = HEAD_BYTES, 0x7FFFFFFFFFFFFFFF, -(1 << 63), 0, 0
    if before is None and row is not None and row.messages and not row.flags & ROW_CUT:
        start, low, high = row.data_end, row.low_ns, row.high_ns
        messages, last_seq = row.messages, row.last_seq
    elif before is not None and before[1].footer is None:
        known = before[1]
        start, low, high = known.end, known.low_ns, known.high_ns
        messages, last_seq = known.messages, known.last_seq
    committed = row.data_end if row is not None else 0
    for _ in range(TORN_TRIES):
        content = block.source.read(start, max(block.source.size - start, 0))
        end, first, seen, low_now, high_now, more = walk(content, block.salt, 0, LAST)
        if start + end >= committed:
            break
        time.sleep(TORN_PAUSE_S)  # a secure erase may be writing just there
    else:
        if before is not None:
            return open_extent(block, None, row)  # what the checkpoint says; a reading tells
        reason = "a record before the committed end does not hold"
        raise BlockDamaged(block.source.name, start + end, reason)
    last_seq = seen if first else last_seq
    if not last_seq:
        return None
    return Extent(
        generation=block.head.generation,
        first_seq=block.head.first_seq,
        last_seq=last_seq,
        low_ns=min(low, low_now),
        high_ns=max(high, high_now),
        end=start + end,
        messages=messages + more,
        footer=None,
    )


def pack(seqs: set[int]) -> bytes:
    return array("Q", sorted(seqs)).tobytes()


def count_between(seqs: list[int], first: int, last: int) -> int:
    return bisect.bisect_right(seqs, last) - bisect.bisect_left(seqs, first)


def between(seqs: list[int], block: BlockView) -> set[int]:
    first = bisect.bisect_left(seqs, block.first_seq)
    return set(seqs[first : bisect.bisect_right(seqs, block.last_seq)])


def up_to_open(blocks: list[BlockView]) -> list[BlockView]:
    """Behind a block without a footer there is none to be read yet: its end is still on its way."""
    for at, block in enumerate(blocks):
        if not block.sealed:
            return blocks[: at + 1]
    return blocks


def clip(blocks: list[BlockView], floor: int) -> list[BlockView]:
    """Sequences of a later block win: above a cut they were used again."""
    kept = []
    for at, block in enumerate(blocks):
        if at + 1 < len(blocks):
            block.last_seq = min(block.last_seq, blocks[at + 1].first_seq - 1)
        block.first_seq = max(block.first_seq, floor)
        if block.first_seq <= block.last_seq:
            kept.append(block)
    return kept


class Directory:
    """All streams of a data directory. `views` looks anew each time, reading what has changed."""

    def __init__(
        self,
        path: str,
        key_text: Callable[[], str | None] = lambda: None,
        named: Collection[str] = (),
    ) -> None:
        """`named`: all the streams that will be wanted, as `S` or `ACCOUNT/S`; none: not known."""
        self._named = frozenset(named)
        self.path, self._only = find_directory(Path(path))
        self._identity, salt = read_identity(self.path)
        self._key_text = key_text
        self._master: bytes | None = None
        self._log = LogTail(self.path / "log", self._identity, salt)
        self._streams: dict[str, StreamFiles] = {}

    def master(self) -> bytes | None:
        if self._master is None:
            text = self._key_text()
            self._master = master_key(text, self._identity) if text else None
        return self._master

    def views(
        self,
        wanted: Callable[[str, str], bool] = lambda account, stream: True,
        *,
        with_names: bool = True,
        unusable: list[NotUsable] | None = None,
    ) -> list[StreamView]:
        """Those for which `wanted(account, stream)`, by account and name.

        Without names a stream whose key is not to be had is no error. A stream that cannot be used
        goes to `unusable`; without that list it is an error, unless all that are named are there.
        """
        self._log.refresh()
        found: list[StreamView] = []
        failed: list[NotUsable] = []
        for folder in self._folders():
            try:
                view = self._view(folder, wanted, with_names)
            except FileNotFoundError:
                self._streams.pop(folder.name, None)  # deleted while we looked, or not begun
                continue
            except NotUsable as error:
                failed.append(error)
                continue
            if view is not None:
                found.append(view)
        if unusable is not None:
            unusable += failed
        elif failed and not self._has_all_named(found):
            raise failed[0]
        return sorted(found, key=lambda view: (view.account, view.stream))

    def _folders(self) -> list[Path]:
        return [
            folder
            for folder in sorted((self.path / "streams").iterdir())
            if not folder.name.startswith(".")
            and (self._only is None or int(folder.name, 16) == self._only)
        ]

    def _view(
        self, folder: Path, wanted: Callable[[str, str], bool], with_names: bool
    ) -> StreamView | None:
        files = self._streams.setdefault(folder.name, StreamFiles(folder, self.master))
        for _ in range(LOOKS_MAX):
            meta = files.meta(with_names)
            if not wanted(meta.account, meta.stream):
                return None
            since = self._log.groups.setdefault(meta.group, Since())
            if since.deleted:
                return None
            view = files.view(meta, since)
            if files.is_final():
                break
            self._log.refresh()
        return view  # a loss that is told falsely in the end is better than one that is not told

    def _has_all_named(self, views: list[StreamView]) -> bool:
        found = {name for view in views for name in (view.stream, view.name)}
        return bool(self._named) and self._named <= found


__all__ = ["Directory", "find_directory", "read_identity"]
