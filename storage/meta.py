"""The `meta` file of a stream: which it is, its settings and its key (FORMAT.md, section 5)."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage._cipher import StreamKey
from storage._codec import checksum
from storage.fs import begin_file, names_in, read_if_there
from storage.keys import WRAPPED_KEY_SIZE, DirectoryKeys

Settings = dict[str, Any]
MAGIC = b"MARTMETA"
PLAIN_HEAD = 36
ENCRYPTED_HEAD = 132
META_VERSION = 2


def no_codec(settings: Settings) -> str:
    return "none"


def name_in(settings: Settings) -> str:
    return str(settings.get("name", ""))


@dataclass(frozen=True, slots=True)
class StreamMeta:
    """What a meta file says; `cipher` 0: nothing of it is encrypted."""

    group: int
    salt: int
    body: bytes
    cipher: int = 0
    wrapped_key: bytes = b""
    label: str = ""

    @property
    def key_context(self) -> bytes:
        return b"MARTKEY1" + self.group.to_bytes(8, "little") + self.salt.to_bytes(8, "little")

    @property
    def settings_context(self) -> bytes:
        return MAGIC + self.group.to_bytes(8, "little")

    def settings(self, key: StreamKey | None) -> Settings | None:
        """None: they cannot be read without the right key."""
        if self.cipher == 0:
            return dict(json.loads(self.body))
        if key is None:
            return None
        plain = key.decrypt(self.cipher, self.body, self.settings_context)
        return None if plain is None else dict(json.loads(plain))

    def encode(self) -> bytes:
        ids = self.group.to_bytes(8, "little") + self.salt.to_bytes(8, "little")
        size = len(self.body).to_bytes(4, "little")
        if self.cipher == 0:
            content = MAGIC + (1).to_bytes(8, "little") + ids + size + self.body
        else:
            label = self.label.encode()
            content = MAGIC + b"\2\0" + self.cipher.to_bytes(6, "little") + ids + self.wrapped_key
            content += len(label).to_bytes(4, "little") + size + label + self.body
        return content + checksum(content).to_bytes(8, "little")


def decode_meta(content: bytes) -> StreamMeta | None:
    """None when it does not hold."""
    end = len(content) - 8
    if end < PLAIN_HEAD or content[:8] != MAGIC:
        return None
    if checksum(content[:end]) != int.from_bytes(content[end:], "little"):
        return None
    version = int.from_bytes(content[8:10], "little")
    group, salt = (int.from_bytes(content[at : at + 8], "little") for at in (16, 24))
    if version == 1:
        return StreamMeta(group, salt, content[PLAIN_HEAD:end])
    if version != META_VERSION or end < ENCRYPTED_HEAD:
        return None
    body_at = ENCRYPTED_HEAD + int.from_bytes(content[124:128], "little")
    return StreamMeta(
        group,
        salt,
        content[body_at:end],
        content[10],
        content[32 : 32 + WRAPPED_KEY_SIZE],
        content[ENCRYPTED_HEAD:body_at].decode(errors="replace"),
    )


def trouble_of(content: bytes) -> str:
    """Why `decode_meta` answers None."""
    version = int.from_bytes(content[8:10], "little")
    holds = checksum(content[:-8]) == int.from_bytes(content[-8:], "little")
    if content[:8] == MAGIC and version > META_VERSION and holds:
        return f"is of a newer version ({version})"
    return "does not hold"


def plain_meta(group: int, salt: int, settings: Settings) -> StreamMeta:
    return StreamMeta(group, salt, json.dumps(settings, sort_keys=True).encode())


def encrypted_meta(
    plain: StreamMeta, settings: Settings, label: str, keys: DirectoryKeys, raw_key: bytes
) -> tuple[StreamMeta, StreamKey]:
    """`plain`'s stream with `settings` under `raw_key`, which is wrapped with the current key."""
    key = StreamKey(raw_key, keys.cipher)
    body = key.encrypt(json.dumps(settings, sort_keys=True).encode(), plain.settings_context)
    wrapped = keys.encrypt(raw_key, plain.key_context)
    return StreamMeta(plain.group, plain.salt, body, keys.cipher, wrapped, label), key


@dataclass(frozen=True, slots=True)
class Unlocked:
    """A stream that may be used; `renewed` is what its meta file should say from now on."""

    key: StreamKey | None
    raw_key: bytes
    settings: Settings
    renewed: StreamMeta | None = None


def unlock(meta: StreamMeta, keys: DirectoryKeys | None, label: str = "") -> Unlocked | None:
    """Open the stream's key, or make one for a stream that has none; None: no key fits."""
    if meta.cipher == 0:
        settings = meta.settings(None) or {}
        if keys is None or not keys.convert:
            return Unlocked(None, b"", settings)
        raw_key = keys.new_key()
        renewed, key = encrypted_meta(meta, settings, label, keys, raw_key)
        return Unlocked(key, raw_key, settings, renewed)
    found = None if keys is None else keys.decrypt(meta.cipher, meta.wrapped_key, meta.key_context)
    if found is None or keys is None:
        return None
    raw_key, due = found
    opened = StreamKey(raw_key, keys.cipher if keys.convert else meta.cipher)
    settings_read = meta.settings(opened)
    if settings_read is None:
        return None
    if not due:
        return Unlocked(opened, raw_key, settings_read)
    renewed, key = encrypted_meta(meta, settings_read, meta.label, keys, raw_key)
    return Unlocked(key, raw_key, settings_read, renewed)


def written_meta(directory: str, logged: bytes | None) -> bytes:
    """What the meta file says, after it was made what the log says; not synced."""
    names = names_in(directory)
    if names is None:
        Path(directory).mkdir(mode=0o700)
        names = []
    for name in names:
        if name.endswith(".new") and not name.startswith("state."):
            Path(directory, name).unlink()
    path = f"{directory}/meta"
    content = read_if_there(path) if "meta" in names else b""
    if logged is None or logged == content:
        return content
    begin_file(path, logged)
    return logged


def group_of(name: str) -> int | None:
    """Of a stream's directory; None: it is something else, like a file system's `lost+found`."""
    return int(name, 16) if re.fullmatch(r"[0-9a-f]{16}", name) else None


def find_streams(
    folder: Path, damage: list[str], logged: dict[int, bytes], gone: set[int]
) -> tuple[list[tuple[str, StreamMeta]], int]:
    """The streams of a directory and the next free group; what unfinished work left is finished.

    `logged` are the metas and `gone` the groups of deleted streams that the log tells of.
    """
    streams = []
    next_group = max((*logged, *gone), default=0) + 1
    for entry in folder.iterdir():
        set_aside = entry.name.startswith(".") and group_of(entry.name[1:]) is not None
        if set_aside or group_of(entry.name) in gone:
            shutil.rmtree(entry)
    there = {group for entry in folder.iterdir() if (group := group_of(entry.name)) is not None}
    for group in sorted(there | logged.keys() - gone):
        directory = f"{folder}/{group:016x}"
        content = written_meta(directory, logged.get(group))
        meta = decode_meta(content)
        next_group = max(next_group, group + 1)
        if meta is None or meta.group != group:
            damage.append(f"{directory}/meta {trouble_of(content)}: the stream is not loaded")
        else:
            streams.append((directory, meta))
    return streams, next_group
