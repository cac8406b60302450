"""How far each source of a stream has come, kept so that a restart neither repeats nor skips.

What is kept is never ahead of what is durable in the stream; `stamp` is the stream's sequence up to
which it is complete, and the headers of later messages tell the rest.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from config.limits import SECOND_NS
from server.jetstream import headers
from server.jetstream._copy import last_with
from server.jetstream.checks import STREAM_SOURCE
from server.jetstream.config import StreamSource
from server.jetstream.origins import SourceMark, index_name, is_of, read_header
from storage._store import StreamStore
from storage.fs import write_file
from storage.keys import FileCipher

if TYPE_CHECKING:
    from server.jetstream.stream import Stream

SAVE_NS: Final = SECOND_NS
STAMP_LAG_MAX: Final = 100_000
"""So many messages a start has to read back at most, or little more."""


@dataclass(frozen=True, slots=True)
class Position:
    seq: int
    identity: str = ""


class KeptPositions(Struct):
    """The file's content."""

    created_ns: int
    stamp: Annotated[int, Meta(ge=0)]
    sources: dict[str, tuple[int, str]]


def file_stem(account: str, stream: str) -> str:
    """A file name for a stream, whatever its name is."""
    return hashlib.sha256(f"{account}\0{stream}".encode()).hexdigest()[:32]


class PositionFiles:
    """One file for each stream with sources."""

    def __init__(self, folder: Path, cipher: FileCipher | None = None) -> None:
        self._folder = folder
        self._cipher = cipher or FileCipher(None, folder.name)
        folder.mkdir(exist_ok=True)

    def _path(self, account: str, stream: str) -> Path:
        return self._folder / f"{file_stem(account, stream)}.json"

    def save(self, account: str, stream: str, kept: KeptPositions, *, lasting: bool) -> None:
        path, content = self._path(account, stream), self._cipher.pack(msgspec.json.encode(kept))
        if lasting:
            write_file(path, content)
            return
        fresh = path.with_name(path.name + ".new")
        fresh.write_bytes(content)
        fresh.rename(path)

    def load(self, account: str, stream: str) -> KeptPositions | None:
        """None also for one that a power loss left broken: the headers tell the same."""
        try:
            content = self._cipher.unpack(self._path(account, stream).read_bytes())
            return None if content is None else msgspec.json.decode(content, type=KeptPositions)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def remove(self, account: str, stream: str) -> None:
        self._path(account, stream).unlink(missing_ok=True)


class Positions:
    """Of one stream. `known` is by index name what was accepted; what is saved was durable."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.known: dict[str, Position] = {}
        self.armed_ns: int | None = None
        self._durable: dict[str, Position] = {}
        self._stamp = self._saved_stamp = 0
        self._old_marks: list[SourceMark] = []
        self._moves: deque[tuple[int, str, Position]] = deque()
        self._recover()

    def of(self, source: StreamSource) -> Position:
        found = self.known.get(index_name(source))
        if found is None:
            old = next((mark for mark in self._old_marks if is_of(mark, source)), None)
            found = Position(old.seq) if old is not None else Position(0)
        return found

    # The start

    def _recover(self) -> None:
        stream = self.stream
        kept = stream.engine.stores.positions(stream.account.name, stream.name)
        if kept is not None and kept.created_ns == stream.created_ns:
            self._stamp = kept.stamp
            self.known = {name: Position(*found) for name, found in kept.sources.items()}
        self._read_back(stream.store.last_seq)
        self._durable = dict(self.known)
        self._stamp = stream.durable_seq
        if stream.config.sources and kept is None:
            self.save()

    def _read_back(self, last: int) -> None:
        """The newest mark of each source behind the stamp."""
        store = self.stream.store
        assert isinstance(store, StreamStore)
        seen: set[str] = set()
        seq = last_with(store, STREAM_SOURCE, last, self._stamp)
        while seq:
            message = store.load(seq)
            text = headers.text(message.headers, STREAM_SOURCE) if message is not None else ""
            mark = read_header(text)
            if mark is not None and mark.index and mark.index not in seen:
                seen.add(mark.index)
                self.known[mark.index] = Position(mark.seq, mark.identity)
            elif mark is not None and not mark.index:
                self._old_marks.append(mark)
            seq = last_with(store, STREAM_SOURCE, seq - 1, self._stamp)

    # Progress

    def moved(self, index: str, position: Position) -> None:
        """All of this source up to `position` was taken."""
        self.known[index] = position
        self._moves.append((self.stream.store.last_seq, index, position))
        self.stream.engine.timers.arm(self, self.stream.engine.now_ns() + SAVE_NS)

    def on_target_durable(self, last: int) -> None:
        moves = self._moves
        while moves and moves[0][0] <= last:
            _, index, position = moves.popleft()
            self._durable[index] = position
        self._stamp = last
        if last - self._saved_stamp > STAMP_LAG_MAX and self.armed_ns is None:
            engine = self.stream.engine
            engine.timers.arm(self, engine.now_ns() + SAVE_NS)

    def tick(self, now_ns: int) -> None:
        self.save(lasting=False)
        if self._moves:
            self.stream.engine.timers.arm(self, now_ns + SAVE_NS)

    def save(self, lasting: bool = True) -> None:
        """Write what is durable; `lasting` survives a power loss, the rest is found in headers."""
        stream = self.stream
        self.on_target_durable(stream.durable_seq)
        kept = KeptPositions(
            stream.created_ns,
            self._stamp,
            {name: (found.seq, found.identity) for name, found in self._durable.items()},
        )
        self._saved_stamp = self._stamp
        stream.engine.stores.save_positions(stream.account.name, stream.name, kept, lasting=lasting)

    def close(self) -> None:
        self.armed_ns = None
        self.save(lasting=False)
