"""`martlet archive --verify`: whether each object of an archive is what was put there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark_jetstream.archive import ROOT, check_root, manifest_key
from pyspark_jetstream.errors import NotUsable
from pyspark_jetstream.objects import Folder


@dataclass
class Verified:
    """What was read, and what was found to be wrong."""

    objects: int = 0
    bytes: int = 0
    wrong: list[str] = field(default_factory=list)


def verify(place: str) -> Verified:
    """Reads every object that a manifest lists; an uploader may be at work meanwhile."""
    folder, found = Folder(place), Verified()
    content = folder.get(ROOT)
    if content is None:
        raise NotUsable(f"{place} is no archive: it has no {ROOT}")
    for listed in check_root(content, place)["streams"]:
        key = manifest_key(listed)
        entries = list(entries_of(folder, key))
        if not entries and folder.get(key) is None and is_listed(folder, listed):
            found.wrong.append(f"{folder.location(key)} is missing: nothing of the stream is found")
        for entry in entries:
            reason = why_wrong(folder, entry, found)
            if reason is not None and is_current(folder, key, entry):
                found.wrong.append(f"{folder.location(entry['key'])} {reason}")
    return found


def entries_of(folder: Folder, manifest: str) -> Iterator[dict[str, Any]]:
    content = folder.get(manifest)
    if content is not None:
        yield from json.loads(content)["blocks"]


def why_wrong(folder: Folder, entry: dict[str, Any], found: Verified) -> str | None:
    """None: it has the bytes that were put."""
    content = folder.get(entry["key"])
    if content is None:
        return "is missing"
    found.objects += 1
    found.bytes += len(content)
    if len(content) != entry["bytes"]:
        return f"has {len(content):,} bytes, not the {entry['bytes']:,} that were put"
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        return "has other bytes than those that were put: its digest is another"
    return None


def is_current(folder: Folder, manifest: str, entry: dict[str, Any]) -> bool:
    """An upload may have put another object in its place since the manifest was read."""
    return any(other["key"] == entry["key"] for other in entries_of(folder, manifest))


def is_listed(folder: Folder, listed: int | str) -> bool:
    content = folder.get(ROOT)
    return content is not None and listed in json.loads(content)["streams"]
