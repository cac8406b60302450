"""Sealed blocks copied to an object store: each exactly once, with digests, and read from there.

    archive.json                   which directory this is, and its streams
    streams/GROUP/manifest.json    the blocks, with all that planning needs
    streams/GROUP/NUMBER-GENERATION-DIGEST.blk

A server may give the group of a stream that was deleted to a new one, after a restart; that one's
folder is GROUP-SALT.

A block is listed only when its object is complete. An object that is there but not listed, because
an upload was killed, is found by its name and not sent again; one that nothing will list is swept
by the next uploader, for it may hold what was erased meanwhile. A manifest also lists what could
not be sent, and what the server dropped before it was, so that readers are told of the hole.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark_jetstream import spans
from pyspark_jetstream._walk import walk
from pyspark_jetstream.blockfile import HEAD_BYTES, TRAILER_BYTES, Block
from pyspark_jetstream.claim import Claim
from pyspark_jetstream.committed import TORN_PAUSES_S, signature
from pyspark_jetstream.directory import Directory, read_identity
from pyspark_jetstream.errors import BlockDamaged, NotUsable
from pyspark_jetstream.meta import parse_meta
from pyspark_jetstream.objects import Folder, local_path
from pyspark_jetstream.plan import Piece
from pyspark_jetstream.sealed import master_key
from pyspark_jetstream.view import BlockView, StreamView, Unreadable

ROOT = "archive.json"
ARCHIVE_VERSION = 1
SAVE_EVERY = 64
SUBJECTS_LISTED_MAX = 64
OURS = re.compile(r"streams/([0-9a-f-]+)/(manifest\.json|[0-9a-f]{16}-\d+-[0-9a-f]{16}\.blk)")

Entry = dict[str, Any]
Manifest = dict[str, Any]


@dataclass
class Report:
    """What one run of the uploader did."""

    sent: int = 0
    sent_bytes: int = 0
    found: int = 0
    kept: int = 0
    removed: int = 0
    damaged: list[str] = field(default_factory=list)


class BytesSource:
    """A block that was read as a whole."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name, self._content, self.size = name, content, len(content)

    def read(self, start: int, length: int) -> bytes:
        return self._content[start : start + length]

    def close(self) -> None:
        pass


def check_block(block: Block) -> None:
    """Read every record or frame: what is damaged is not to be copied as if it were sound."""
    if block.footer is None:
        at = max(block.source.size - TRAILER_BYTES, 0)
        raise BlockDamaged(block.source.name, at, "the end of the sealed block does not hold")
    if block.head.framed:
        block.check_frames()
        return
    end = HEAD_BYTES
    for base, content in block.runs():
        end = base + walk(content, block.salt, 0, (1 << 64) - 1)[0]
    if end < block.footer.data_end and block.footer.slots:
        raise BlockDamaged(block.source.name, end, "a record does not hold")


def listed_subjects(block: Block) -> list[str] | None:
    found = block.subjects()
    if found is None:
        return None
    subjects = [subject.decode("latin-1") for subject in found]
    return subjects if len(subjects) <= SUBJECTS_LISTED_MAX else None


class Uploader:
    """Brings an archive up to date with a data directory."""

    def __init__(
        self, directory: str, target: str, *, follow: bool = False, token: str | None = None
    ) -> None:
        """`follow`: what the server's limits dropped goes from the archive too.

        `token`: of a process that makes one uploader after the other, for its claims.
        """
        self._directory = Directory(directory)
        self._path = self._directory.path
        self._folder = Folder(target, make=True)
        self._folder.sweep(time.time())
        self._follow = follow
        self._swept = False
        self._identity = read_identity(self._path)[0].hex()
        self._claim = Claim(self._folder, token=token)
        self._root = self._read_root() or self._new_root()

    def _new_root(self) -> dict[str, Any]:
        return {"version": ARCHIVE_VERSION, "identity": self._identity, "streams": []}

    def _read_root(self) -> dict[str, Any] | None:
        content = self._folder.get(ROOT)
        if content is None:
            return None
        root = check_root(content, self._folder.place)
        if root["identity"] != self._identity:
            raise NotUsable(f"{self._folder.place} is the archive of another data directory")
        return root

    def run(self) -> Report:
        report = Report()
        with self._claim:
            root = self._read_root()
            self._root = root or self._new_root()
            if root is None:
                self._put_root()
            swept, self._swept = self._swept, False  # a run that fails may leave something
            unusable: list[NotUsable] = []
            views = self._directory.views(with_names=False, unusable=unusable)
            report.damaged += map(str, unusable)
            for view in views:
                folder = self._path / "streams" / f"{view.group:016x}"
                try:
                    meta = (folder / "meta").read_bytes()
                except FileNotFoundError:
                    continue  # deleted meanwhile
                self._stream(view, meta, report)
            if self._follow and not unusable:
                self._drop_deleted({view.salt for view in views}, report)
            if not swept:
                self._sweep()
            self._swept = True
        return report

    def _put_root(self) -> None:
        self._claim.keep()
        self._folder.put(ROOT, json.dumps(self._root).encode())

    def _sweep(self) -> None:
        """Delete objects that no manifest lists: of uploads that were killed."""
        known: set[str] = set()
        unread = set()
        for listed in self._root["streams"]:
            content = self._folder.get(manifest_key(listed))
            if content is None:
                unread.add(folder_name(listed))
            else:
                known.add(manifest_key(listed))
                known.update(entry["key"] for entry in json.loads(content)["blocks"])
        for key in list(self._folder.keys("streams")):
            ours = OURS.fullmatch(key)
            if ours is not None and key not in known and ours[1] not in unread:
                self._delete(key)

    def _drop_deleted(self, salts: set[int], report: Report) -> None:
        """Streams that the server deleted; first from the list: nobody is to find half of one."""
        gone: list[tuple[str, Manifest]] = []
        kept = []
        for listed in self._root["streams"]:
            content = self._folder.get(manifest_key(listed))
            manifest = json.loads(content) if content is not None else None
            if manifest is None or manifest["salt"] in salts:
                kept.append(listed)
            else:
                gone.append((manifest_key(listed), manifest))
        if gone:
            self._root["streams"] = kept
            self._put_root()
        for key, manifest in gone:
            for entry in manifest["blocks"]:
                self._delete(entry["key"])
                report.removed += 1
            self._delete(key)

    def _manifest(self, view: StreamView) -> tuple[int | str, Manifest]:
        """How the stream is listed, and its blocks so far."""
        for listed in (view.group, f"{view.group:016x}-{view.salt:016x}"):
            content = self._folder.get_remembered(manifest_key(listed))
            manifest = new_manifest(view) if content is None else json.loads(content)
            if manifest["salt"] == view.salt:
                return listed, manifest
        raise AssertionError("a salt has one folder")

    def _stream(self, view: StreamView, meta: bytes, report: Report) -> None:
        listed, manifest = self._manifest(view)
        key = manifest_key(listed)
        manifest["meta"] = base64.b64encode(meta).decode()
        manifest["floor"] = view.floor
        entries = {entry["number"]: entry for entry in manifest["blocks"]}
        unsent = {number: (first, last) for number, first, last in manifest.get("unsent", [])}
        self._note_dropped(view, manifest, entries, unsent)
        stale = self._drop_gone(view, entries, unsent, report)
        manifest["lost"] = self._lost(view, manifest, entries)
        unsaved = 0
        for block in view.blocks:
            if not block.sealed:
                continue
            before = entries.get(block.number)
            entry = self._block(view, block, before, key.rpartition("/")[0], report)
            note_unsent(block, entry, unsent, manifest["dropped"])
            if before is not None and (entry is None or before["key"] != entry["key"]):
                stale.append(entries.pop(block.number)["key"])
            if entry is not None:
                entries[block.number] = entry
            unsaved += entry is not before
            if unsaved >= SAVE_EVERY:
                self._save(key, manifest, entries, unsent)
                unsaved = 0
        self._note_unreadable(view, entries, unsent, report)
        ends = [block.last_seq for block in view.blocks if block.sealed]
        manifest["through"] = max((manifest["through"], *ends))
        self._save(key, manifest, entries, unsent)
        self._list(listed)
        for old in stale:
            self._delete(old)

    def _note_dropped(
        self,
        view: StreamView,
        manifest: Manifest,
        entries: dict[int, Entry],
        unsent: dict[int, tuple[int, int]],
    ) -> None:
        """What limits took before it was sent: nothing else tells that it was ever there.

        `through` is the last sequence of which the archive knows what became of it.
        """
        ends = [manifest["through"]] if "through" in manifest else []
        ends += [entry["last_seq"] for entry in entries.values()]
        ends += [last for _, last in unsent.values()]
        # A cut has sequences used again.
        through = min(max(ends, default=view.floor - 1), view.claimed_last)
        dropped = [] if self._follow else list(map(as_span, manifest.get("dropped", [])))
        if through + 1 < view.floor and not self._follow:
            dropped.append((through + 1, view.floor - 1))
        manifest["dropped"] = [list(span) for span in spans.joined(dropped)]
        manifest["through"] = max(through, view.floor - 1)

    def _lost(
        self, view: StreamView, manifest: Manifest, entries: dict[int, Entry]
    ) -> list[list[int]]:
        """What the server lost to damage, but for copies that were sent before; of what its limits
        dropped since, too.
        """
        now = [(max(first, view.floor), last) for first, last in view.lost]
        known = list(map(as_span, manifest.get("lost", [])))
        if self._follow:
            known = [one for one in known if any(is_touched(one, other) for other in now)]
        readable = {block.number for block in view.blocks}
        copied = [
            (entry["first_seq"], entry["last_seq"])
            for number, entry in entries.items()
            if number in view.held and number not in readable
        ]
        return [list(span) for span in sorted({*known, *spans.without(now, copied)})]

    def _note_unreadable(
        self,
        view: StreamView,
        entries: dict[int, Entry],
        unsent: dict[int, tuple[int, int]],
        report: Report,
    ) -> None:
        """Blocks of which the directory has nothing to send; a copy from before stays."""
        for broken in view.damaged:
            report.damaged.append(broken.words)
        gone = [(broken.number, broken.first_seq, broken.last_seq) for broken in view.damaged]
        for number, first, last in (*gone, *view.missing):
            if number not in entries:
                unsent[number] = (first, last)

    def _drop_gone(
        self,
        view: StreamView,
        entries: dict[int, Entry],
        unsent: dict[int, tuple[int, int]],
        report: Report,
    ) -> list[str]:
        """Blocks whose messages were deleted one by one; with `follow` what limits dropped too."""
        stale = []
        for number in [number for number in entries if number not in view.held]:
            if self._follow or entries[number]["last_seq"] >= view.floor:
                stale.append(entries.pop(number)["key"])
                report.removed += 1
        for number in [number for number in unsent if number not in view.held]:
            if self._follow or unsent[number][1] >= view.floor:
                del unsent[number]
        return stale

    def _block(
        self, view: StreamView, block: BlockView, before: Entry | None, folder: str, report: Report
    ) -> Entry | None:
        """How it is listed from now on; None: not at all."""
        if not block.messages:
            return None  # a compaction left only skips
        path = Path(block.location)
        seen = signature(path)
        if seen is None:
            return before
        fingerprint = [block.generation, *seen[1:]]
        dead = base64.b64encode(zlib.compress(block.dead)).decode() if block.dead else ""
        if before is not None and before["fingerprint"] == fingerprint:
            before["dead"] = dead
            report.kept += 1
            return before
        try:
            content, opened = read_checked(path, view, block.number)
        except FileNotFoundError:
            return before
        except BlockDamaged as failed:
            report.damaged.append(failed.words)
            return before
        digest = hashlib.sha256(content).hexdigest()
        key = f"{folder}/{block.number:016x}-{block.generation}-{digest[:16]}.blk"
        self._send(key, content, report)
        first = block.first_seq if before is None else min(before["first_seq"], block.first_seq)
        return {
            "number": block.number,
            "generation": block.generation,
            "key": key,
            "bytes": len(content),
            "sha256": digest,
            "fingerprint": fingerprint,
            "first_seq": first,
            "last_seq": block.last_seq,
            "low_ns": block.low_ns,
            "high_ns": block.high_ns,
            "data_end": block.data_end,
            "messages": block.messages,
            "subjects": listed_subjects(opened),
            "dead": dead,
        }

    def _delete(self, key: str) -> None:
        self._claim.keep()
        self._folder.delete(key)

    def _send(self, key: str, content: bytes, report: Report) -> None:
        self._claim.keep()
        if self._folder.size(key) == len(content):
            report.found += 1
            return
        self._folder.put(key, content)
        report.sent += 1
        report.sent_bytes += len(content)

    def _save(
        self,
        key: str,
        manifest: Manifest,
        entries: dict[int, Entry],
        unsent: dict[int, tuple[int, int]],
    ) -> None:
        manifest["blocks"] = [entries[number] for number in sorted(entries)]
        manifest["unsent"] = [[number, *unsent[number]] for number in sorted(unsent)]
        self._claim.keep()
        self._folder.put_changed(key, json.dumps(manifest).encode())

    def _list(self, listed: int | str) -> None:
        if listed not in self._root["streams"]:
            self._root["streams"].append(listed)
            self._put_root()


def read_checked(path: Path, view: StreamView, number: int) -> tuple[bytes, Block]:
    """All of a block, once all of it holds: a secure erase may be writing in it."""
    for pause_s in (*TORN_PAUSES_S, None):
        content = path.read_bytes()
        try:
            opened = Block(BytesSource(str(path), content), view.salt, view.group, number=number)
            check_block(opened)
            opened.body()
            break
        except BlockDamaged:
            if pause_s is None:
                raise
            time.sleep(pause_s)
    return content, opened


def note_unsent(
    block: BlockView,
    entry: Entry | None,
    unsent: dict[int, tuple[int, int]],
    dropped: list[list[int]],
) -> None:
    """Keep the lists of what has messages and no copy in the archive: of blocks, of sequences."""
    if entry is not None or not block.messages:
        unsent.pop(block.number, None)
    elif Path(block.location).exists():
        unsent[block.number] = (block.first_seq, block.last_seq)
    elif block.number not in unsent:
        dropped.append([block.first_seq, block.last_seq])  # it went while we looked


def as_span(listed: list[int]) -> spans.Span:
    first, last = listed
    return first, last


def is_touched(one: spans.Span, other: spans.Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def folder_name(listed: int | str) -> str:
    """Of a stream by what archive.json lists it as: its group, or the name of its folder."""
    return f"{listed:016x}" if isinstance(listed, int) else listed


def manifest_key(listed: int | str) -> str:
    return f"streams/{folder_name(listed)}/manifest.json"


def new_manifest(view: StreamView) -> Manifest:
    return {
        "version": ARCHIVE_VERSION,
        "group": view.group,
        "salt": view.salt,
        "floor": view.floor,
        "blocks": [],
    }


def check_root(content: bytes, place: str) -> dict[str, Any]:
    root: dict[str, Any] = json.loads(content)
    if root["version"] > ARCHIVE_VERSION:
        raise NotUsable(
            f"{place} has archive version {root['version']}; this reads up to {ARCHIVE_VERSION}"
        )
    return root


def is_archive(path: str) -> bool:
    local = local_path(path)
    return local is None or (local / ROOT).exists()


def successor(piece: Piece) -> Piece | None:
    """The same sequences in the object that took the place of the one planned; None: it is gone.

    An upload replaces a block that was compacted or had a message erased.
    """
    place, _, name = piece.location.rpartition("/")
    if not name.endswith(".blk") or "-" not in name:
        return None
    content = Folder(place).get("manifest.json")
    entries = json.loads(content)["blocks"] if content is not None else []
    for entry in entries:
        location = f"{place}/{entry['key'].rpartition('/')[2]}"
        if entry["number"] == piece.number and location != piece.location:
            return replace(piece, location=location)
    return None


def unsent_block(number: int, first: int, last: int) -> Unreadable:
    words = f"block {number:016x} ({first} to {last}) is not in the archive: it did not hold"
    return Unreadable(number, first, last, words)


class Archive:
    """An archive as a store of views."""

    def __init__(self, place: str, key_text: Callable[[], str | None]) -> None:
        self._folder = Folder(place)
        content = self._folder.get(ROOT)
        if content is None:
            raise NotUsable(f"{place} is no archive: it has no {ROOT}")
        self._root = check_root(content, place)
        self._key_text = key_text
        self._master: bytes | None = None

    def _master_key(self) -> bytes | None:
        text = self._key_text()
        if self._master is None and text:
            self._master = master_key(text, bytes.fromhex(self._root["identity"]))
        return self._master

    def views(self, wanted: Callable[[str, str], bool]) -> list[StreamView]:
        """Of streams that had one name the last: the others were deleted on the server."""
        content = self._folder.get(ROOT)
        self._root = json.loads(content) if content is not None else self._root
        found = (self._view(listed, wanted) for listed in self._root["streams"])
        by_name = {view.name: view for view in found if view is not None}
        return sorted(by_name.values(), key=lambda view: (view.account, view.stream))

    def _view(self, listed: int | str, wanted: Callable[[str, str], bool]) -> StreamView | None:
        content = self._folder.get(manifest_key(listed))
        if content is None:
            return None
        manifest = json.loads(content)
        group = manifest["group"]
        where = f"{self._folder.place}, stream {group:016x}"
        meta = parse_meta(base64.b64decode(manifest["meta"]), where, self._master_key)
        if not wanted(meta.account, meta.stream):
            return None
        view = StreamView(meta.account, meta.stream, group, meta.salt, manifest["floor"], meta.key)
        view.blocks = list(self._blocks(manifest))
        view.lost = list(map(as_span, manifest.get("lost", [])))
        view.dropped = list(map(as_span, manifest.get("dropped", [])))
        view.damaged = [unsent_block(*unsent) for unsent in manifest.get("unsent", [])]
        if view.blocks:
            unsent_from = (unsent.first_seq for unsent in view.damaged)
            view.floor = min((view.blocks[0].first_seq, *unsent_from))
            view.last_seq = max(block.last_seq for block in view.blocks)
        else:
            view.last_seq = view.floor - 1
        view.claimed_last = view.last_seq
        return view

    def _blocks(self, manifest: Manifest) -> Iterator[BlockView]:
        for entry in manifest["blocks"]:
            subjects = entry["subjects"]
            yield BlockView(
                location=self._folder.location(entry["key"]),
                number=entry["number"],
                generation=entry["generation"],
                first_seq=entry["first_seq"],
                last_seq=entry["last_seq"],
                low_ns=entry["low_ns"],
                high_ns=entry["high_ns"],
                data_end=entry["data_end"],
                messages=entry["messages"],
                sealed=True,
                file_bytes=entry["bytes"],
                dead=zlib.decompress(base64.b64decode(entry["dead"])) if entry["dead"] else b"",
                subjects=None
                if subjects is None
                else tuple(subject.encode("latin-1") for subject in subjects),
            )
