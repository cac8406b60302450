"""A small data directory of each kind, and what one damaged bit or a cut does to it.

`Specimen` keeps the files in memory and puts them back between trials, so that a trial costs less
than a millisecond: one process, no copy of the tree, a file system in memory where there is one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from storage.__main__ import check_streams, damaged_files, report
from storage.filestore import FileStores
from storage.keys import ServerKeys

Message = tuple[int, int, bytes, bytes, bytes]
KEY = "a key for tests"
STREAM = f"streams/{1:016x}"
COMMON: dict[str, Any] = {"segment_size": 1024, "threaded": False}
SMALL = {"block_size_min": 300, "block_size_max": 300}
FRAMED = {"block_size_min": 256 << 10, "block_size_max": 256 << 10, "segment_size": 1 << 20}


@dataclass(frozen=True)
class Kind:
    """How a specimen is written."""

    codec: str = "none"
    cipher: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    body_size: int = 10
    messages: int = 16

    def open(self, path: Path) -> FileStores:
        keys = ServerKeys(KEY, cipher=self.cipher) if self.cipher else None
        options = COMMON | self.options
        return FileStores(path, keys=keys, codec_of=lambda settings: self.codec, **options)

    def wanted(self) -> list[Message]:
        return [
            (seq, seq, b"s.%d" % (seq % 3), b"", (b"payload %d " % seq).ljust(self.body_size, b"."))
            for seq in range(1, self.messages + 1)
        ]


def framed(codec: str, cipher: str = "") -> Kind:
    """Bodies that compress to almost nothing, so that a small file has several frames."""
    return Kind(codec, cipher, FRAMED, body_size=33 << 10, messages=12)


KINDS = {
    "plain": Kind(options=SMALL),
    "chacha": Kind(cipher="chacha", options=SMALL),
    "aes": Kind(cipher="aes", options=SMALL),
    "zstd": framed("zstd"),
    "s2": framed("s2"),
    "lz4": framed("lz4"),
    "zstd-chacha": framed("zstd", "chacha"),
    "lz4-aes": framed("lz4", "aes"),
}


SHORT_LOG: dict[str, Any] = {"threaded": False, "segment_size": 64 << 10}


def two_streams(path: Path) -> FileStores:
    """Behind a checkpoint that has only the streams."""
    stores = FileStores(path, **SHORT_LOG)
    for name in ("one", "two"):
        stores.create({"name": name})
    stores.close()
    return FileStores(path, **SHORT_LOG)


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder on a file system in memory where the machine has one: nothing here needs a disk."""
    shared = Path("/dev/shm")
    usable = shared.is_dir() and os.access(shared, os.W_OK)
    with tempfile.TemporaryDirectory(dir=shared if usable else None) as folder:
        yield Path(folder)


def fill_clean(kind: Kind, path: Path) -> None:
    """Sealed blocks, one active block, a clean stop."""
    stores = kind.open(path)
    stores.create({"name": "s"})
    store_all(kind, stores)
    stores.directory.wait_applied()
    stores.directory.wait_rewritten()
    stores.close()


def content_of(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


@dataclass(frozen=True)
class Outcome:
    """What a start and a reading of everything brought."""

    served: list[Message]
    lost: set[int]
    damage: list[str]
    verdict: int
    """The tool's exit code."""
    state_lost: set[int]


class Specimen:
    """The files of a data directory, put back before each trial."""

    def __init__(self, kind: Kind, folder: Path, fill: Callable[[Kind, Path], None]) -> None:
        self.kind = kind
        fill(kind, folder / "original")
        self.files = content_of(folder / "original")
        self.wanted = {message[0]: message for message in kind.wanted()}
        self.path = folder / "trial"
        self.written: dict[str, tuple[int, ...]] = {}

    def put_back(self) -> None:
        """Rewrite what the last trial changed, remove what it added."""
        for folder, _, names in os.walk(self.path):
            for name in names:
                file = f"{folder}/{name}"
                if file[len(str(self.path)) + 1 :] not in self.files:
                    Path(file).unlink()
        for name, content in self.files.items():
            if self.stamp(name) != self.written.get(name, ()):
                self.write(name, content)

    def stamp(self, name: str) -> tuple[int, ...] | None:
        """What tells whether somebody wrote to the file since."""
        try:
            now = os.stat(f"{self.path}/{name}")  # noqa: PTH116 this is the inner loop
        except FileNotFoundError:
            return None
        return now.st_mtime_ns, now.st_size, now.st_ino

    def write(self, name: str, content: bytes) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        stamp = self.stamp(name)
        assert stamp is not None
        self.written[name] = stamp

    def damaged(self, name: str, content: bytes) -> Outcome:
        """Open the directory with `content` in `name`."""
        self.put_back()
        self.write(name, content)
        del self.written[name]
        return self.outcome()

    def outcome(self) -> Outcome:
        seen = damaged_files(self.path)
        stores = self.kind.open(self.path)
        directory = stores.directory
        try:
            found = check_streams(directory)
            found["damage"] += seen
            if not directory.homes:
                return Outcome([], set(), found["damage"], verdict(found), set())
            home = directory.homes[1]
            served = home.get_all()
            lost = {seq for first, last in home.lost for seq in range(first, last + 1)}
            state = stores.stores[1].state()
            told = set(state.lost.sequences) if state.lost is not None else set()
            damage = found["damage"] + home.damage
            return Outcome(served, lost, damage, verdict(found), told)
        finally:
            stores.close(clean=False)

    def live_on(self, missing: set[int]) -> None:
        """After damage the stream goes on: what is stored now is there after a clean stop."""
        last = max(self.wanted)
        stores = self.kind.open(self.path)
        assert stores.stores[1].store("s.9", b"", b"later", 9) == last + 1
        stores.close()
        again = self.outcome()
        kept = [message for seq, message in self.wanted.items() if seq not in missing]
        assert again.served == [*kept, (last + 1, 9, b"s.9", b"", b"later")]
        assert again.lost == again.state_lost == missing


def verdict(found: dict[str, Any]) -> int:
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return report(found, False)


def flips(content: bytes, first: int = 0, step: int = 1) -> Iterator[tuple[int, bytes]]:
    """Every `step`-th bit from the `first` on: its number and the content with it flipped."""
    damaged = bytearray(content)
    for bit in range(first, len(content) * 8, step):
        damaged[bit >> 3] ^= 1 << (bit & 7)
        yield bit, bytes(damaged)
        damaged[bit >> 3] ^= 1 << (bit & 7)


def fill_killed(kind: Kind, path: Path) -> None:
    """Killed before any checkpoint: all of it is in the log and in the blocks."""
    stores = kind.open(path)
    stores.create({"name": "s"})
    store_all(kind, stores)
    stores.close(clean=False)


def fill_log_only(kind: Kind, path: Path) -> None:
    """The same after a power cut that took what nobody had synced: the blocks."""
    fill_killed(kind, path)
    for block in path.glob("streams/*/*.blk"):
        block.unlink()


def fill_log_behind_a_checkpoint(kind: Kind, path: Path) -> None:
    """As `fill_log_only`, of a stream made in an earlier run: the log has no meta."""
    stores = kind.open(path)
    stores.create({"name": "s"})
    stores.close()
    stores = kind.open(path)
    store_all(kind, stores)
    stores.close(clean=False)
    for block in path.glob("streams/*/*.blk"):
        block.unlink()


def store_all(kind: Kind, stores: FileStores) -> None:
    wanted = kind.wanted()
    for start in range(0, len(wanted), 4):
        for _, ts_ns, subject, headers, body in wanted[start : start + 4]:
            stores.stores[1].store(subject.decode(), headers, body, ts_ns)
        stores.wait(stores.commit())


@dataclass(frozen=True)
class Part:
    """Bytes of a file that stand for something, and the messages that only they hold."""

    start: int
    end: int
    sequences: frozenset[int] = frozenset()
    provable: bool = True
    """Whether a start can tell damage here from a write that never came to its end."""


def number(content: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(content[at : at + size], "little")


def records_in(content: bytes, at: int, end: int) -> Iterator[Part]:
    while at < end and number(content, at):
        size = number(content, at)
        yield Part(at, at + size, frozenset({number(content, at + 8, 8)}))
        at += size


def block_parts(content: bytes) -> list[Part]:
    """Header, records or frames, footer (FORMAT.md, 3 and 7)."""
    head = Part(0, 64)
    if content[-128:-120] != b"MARTFTR1":
        return [head, *records_in(content, 64, len(content) - 4)]
    trailer = len(content) - 128
    footer = Part(number(content, trailer + 60), len(content))
    frames = number(content, trailer + 108)
    if not frames:
        return [head, *records_in(content, 64, number(content, trailer + 56)), footer]
    parts, seq = [], number(content, trailer + 24, 8)
    for at in (number(content, trailer - 8 * row) for row in range(frames, 0, -1)):
        records = number(content, at + 20)
        held = frozenset(range(seq, seq + records))
        parts.append(Part(at, at + 32 + number(content, at + 8), held))
        seq += records
    return [head, *parts, footer]


def segment_parts(content: bytes, durable: int) -> list[Part]:
    """Header and log frames (FORMAT.md, 4); `durable`: the highest position that a frame names."""
    parts, at = [Part(0, 64)], 64
    base = number(content, 16, 8) << 32
    while content[at + 4]:
        end = at + 40 + number(content, at)
        held = records_in(content, at + 40, end) if content[at + 4] == 1 else ()
        sequences = frozenset(seq for record in held for seq in record.sequences)
        parts.append(Part(at, end, sequences, base + at < durable))
        at = (end + 7) & ~7
    return parts


def durable_position(segments: list[bytes]) -> int:
    """The highest position below which the log says that it was durable."""
    return max(
        number(content, part.start + 24, 8)
        for content in segments
        for part in segment_parts(content, 0)[1:]
    )
