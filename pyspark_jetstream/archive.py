"""Sealed blocks copied to an object store: each exactly once, with digests, and read from there.

    archive.json                   which directory this is, and its streams
    streams/GROUP/manifest.json    the blocks, with all that planning needs
    streams/GROUP/NUMBER-GENERATION-DIGEST.blk

A server may give the group of a stream that was deleted to a new one, after a restart; that one's
folder is GROUP-SALT.

A block is listed only when its object is complete. An object that is there but not listed, because
an upload was killed, is found by its name and not sent again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark_jetstream._walk import walk
from pyspark_jetstream.blockfile import HEAD_BYTES, Block
from pyspark_jetstream.committed import signature
from pyspark_jetstream.directory import Directory, parse_meta, read_identity
from pyspark_jetstream.errors import BlockDamaged, NotUsable
from pyspark_jetstream.objects import Folder, local_path
from pyspark_jetstream.plan import Piece
from pyspark_jetstream.sealed import master_key
from pyspark_jetstream.view import BlockView, StreamView

ROOT = "archive.json"
ARCHIVE_VERSION = 1
SAVE_EVERY = 64
SUBJECTS_LISTED_MAX = 64

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

    def view(self, start: int, length: int) -> bytes | memoryview:
        return self.read(start, length)

    def close(self) -> None:
        pass


def check_block(block: Block) -> None:
    """Read every record: what is damaged is not to be copied as if it were sound."""
    assert block.footer is not None
    end = HEAD_BYTES
    for base, content in block.runs():
        end = base + walk(content, block.salt, 0, (1 << 64) - 1)[0]
    if end < block.footer.data_end and block.footer.slots:
        raise BlockDamaged(block.source.name, end, "a record does not hold")
    block.body()


def listed_subjects(block: Block) -> list[str] | None:
    found = block.subjects()
    if found is None:
        return None
    subjects = [subject.decode("latin-1") for subject in found]
    return subjects if len(subjects) <= SUBJECTS_LISTED_MAX else None


class Uploader:
    """Brings an archive up to date with a data directory."""

    def __init__(self, directory: str, target: str, *, follow: bool = False) -> None:
        """`follow`: what the server's limits dropped goes from the archive too."""
        self._directory = Directory(directory)
        self._path = self._directory.path
        self._folder = Folder(target, make=True)
        self._folder.sweep(time.time())
        self._follow = follow
        self._identity = read_identity(self._path)[0].hex()
        self._root = self._open_root()

    def _open_root(self) -> dict[str, Any]:
        content = self._folder.get(ROOT)
        if content is None:
            root = {"version": ARCHIVE_VERSION, "identity": self._identity, "streams": []}
            self._folder.put(ROOT, json.dumps(root).encode())
            return root
        root = check_root(content, self._folder.place)
        if root["identity"] != self._identity:
            raise NotUsable(f"{self._folder.place} is the archive of another data directory")
        return root

    def run(self) -> Report:
        report = Report()
        views = self._directory.views(with_names=False)
        for view in views:
            folder = self._path / "streams" / f"{view.group:016x}"
            try:
                meta = (folder / "meta").read_bytes()
            except FileNotFoundError:
                continue  # deleted meanwhile
            self._stream(view, meta, report)
        if self._follow:
            self._drop_deleted({view.salt for view in views}, report)
        return report

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
            self._folder.put(ROOT, json.dumps(self._root).encode())
        for key, manifest in gone:
            for entry in manifest["blocks"]:
                self._folder.delete(entry["key"])
                report.removed += 1
            self._folder.delete(key)

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
        stale = self._drop_gone(view, entries, report)
        unsaved = 0
        for block in view.blocks:
            if not block.sealed or not block.messages:
                continue
            before = entries.get(block.number)
            entry = self._block(view, block, before, key.rpartition("/")[0], report)
            if entry is None:
                continue
            entries[block.number] = entry
            if before is not None and before["key"] != entry["key"]:
                stale.append(before["key"])
            unsaved += entry is not before
            if unsaved >= SAVE_EVERY:
                self._save(key, manifest, entries)
                unsaved = 0
        self._save(key, manifest, entries)
        self._list(listed)
        for old in stale:
            self._folder.delete(old)

    def _drop_gone(self, view: StreamView, entries: dict[int, Entry], report: Report) -> list[str]:
        """Blocks whose messages were deleted one by one; with `follow` what limits dropped too."""
        there = {block.number for block in view.blocks}
        stale = []
        for number in [number for number in entries if number not in there]:
            if self._follow or entries[number]["last_seq"] >= view.floor:
                stale.append(entries.pop(number)["key"])
                report.removed += 1
        return stale

    def _block(
        self, view: StreamView, block: BlockView, before: Entry | None, folder: str, report: Report
    ) -> Entry | None:
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
            content = path.read_bytes()
            opened = Block(BytesSource(str(path), content), view.salt, view.group)
            if opened.footer is None:
                return before
            if not opened.head.framed:
                check_block(opened)
        except FileNotFoundError:
            return before
        except BlockDamaged as failed:
            report.damaged.append(str(failed))
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

    def _send(self, key: str, content: bytes, report: Report) -> None:
        if self._folder.size(key) == len(content):
            report.found += 1
            return
        self._folder.put(key, content)
        report.sent += 1
        report.sent_bytes += len(content)

    def _save(self, key: str, manifest: Manifest, entries: dict[int, Entry]) -> None:
        manifest["blocks"] = [entries[number] for number in sorted(entries)]
        self._folder.put_changed(key, json.dumps(manifest).encode())

    def _list(self, listed: int | str) -> None:
        if listed not in self._root["streams"]:
            self._root["streams"].append(listed)
            self._folder.put(ROOT, json.dumps(self._root).encode())


def manifest_key(listed: int | str) -> str:
    """Of a stream by what archive.json lists it as: its group, or the name of its folder."""
    name = f"{listed:016x}" if isinstance(listed, int) else listed
    return f"streams/{name}/manifest.json"


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
        if view.blocks:
            view.floor = view.blocks[0].first_seq
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
