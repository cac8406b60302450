"""A stream's meta file: its name, settings and key (storage/FORMAT.md, section 5)."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark_jetstream._walk import checksum
from pyspark_jetstream.blockfile import FORMAT_VERSION
from pyspark_jetstream.errors import NotUsable
from pyspark_jetstream.sealed import KEY_ADVICE, WrongKey, open_sealed

META_HEAD = struct.Struct("<8sHB5xQQ")


class TornMeta(NotUsable):
    """A meta that does not hold: damaged, or only just being written."""


@dataclass(frozen=True)
class Meta:
    """What the server said of a stream."""

    group: int
    salt: int
    account: str
    stream: str
    config: dict[str, object] = field(default_factory=dict)
    key: bytes | None = None


def parse_meta(
    content: bytes, name: str, master: Callable[[], bytes | None], with_names: bool = True
) -> Meta:
    """NotUsable when it does not hold, is newer, or is encrypted and there is no key."""
    if content[:8] != b"MARTMETA" or len(content) < 44:
        raise TornMeta(f"{name} is not a stream's meta")
    if checksum(content[:-8]) != int.from_bytes(content[-8:], "little"):
        raise TornMeta(f"{name} is damaged: its checksum does not hold")
    _, version, cipher, group, salt = META_HEAD.unpack_from(content)
    if version > FORMAT_VERSION:
        raise NotUsable(f"{name} has format version {version}; this reads up to {FORMAT_VERSION}")
    key = None
    if version == 1:
        body = content[36:-8]
    else:
        label_size, size = struct.unpack_from("<II", content, 124)
        label = content[132 : 132 + label_size].decode("utf-8", "replace")
        if not with_names:
            return Meta(group, salt, "", label)
        key, body = open_meta(content, label, cipher, group, salt, master(), size)
    settings = json.loads(body)
    config = settings.get("config", "{}")
    config = json.loads(config) if isinstance(config, str) else config
    stream = config.get("name") or settings.get("name") or f"{group:016x}"
    return Meta(group, salt, settings.get("account", "$G"), stream, config, key)


def open_meta(
    content: bytes, label: str, cipher: int, group: int, salt: int, master: bytes | None, size: int
) -> tuple[bytes, bytes]:
    """The stream's key and its settings."""
    if master is None:
        raise WrongKey(f"stream {label} is encrypted: {KEY_ADVICE}")
    about = b"MARTKEY1" + struct.pack("<QQ", group, salt)
    key = open_sealed(cipher, master, content[32:124], about, f"stream {label}")
    start = len(content) - 8 - size
    about = b"MARTMETA" + struct.pack("<Q", group)
    return key, open_sealed(cipher, key, content[start:-8], about, f"stream {label}")
