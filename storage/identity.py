"""The `directory` file: which data directory this is, and who may read it (FORMAT.md, 1)."""

from __future__ import annotations

from pathlib import Path

from storage._codec import checksum
from storage.fs import NotUsable, write_file

FORMAT_VERSION = 2
PLAIN_VERSION = 1
"""What a directory without compressed and encrypted streams needs of a reader."""


def checksum_of(content: bytes, seed: int = 0) -> bytes:
    return checksum(content, seed).to_bytes(8, "little")


def read_identity(path: Path) -> tuple[bytes, int]:
    """`(identity, salt)` from the `directory` file; NotUsable when it is not ours."""
    content = (path / "directory").read_bytes()
    if (
        content[:8] != b"MARTDIR1"
        or len(content) != 64
        or checksum_of(content[:56]) != content[56:]
    ):
        raise NotUsable(f"{path}/directory does not hold: not a Martlet data directory, or damaged")
    version = int.from_bytes(content[8:10], "little")
    if version > FORMAT_VERSION:
        raise NotUsable(
            f"{path} has format version {version}; this Martlet knows up to {FORMAT_VERSION}"
        )
    return content[16:32], int.from_bytes(content[32:40], "little")


def write_identity(path: Path, identity: bytes, salt: int, version: int) -> None:
    content = b"MARTDIR1" + version.to_bytes(8, "little") + identity
    content += salt.to_bytes(8, "little") + bytes(16)
    write_file(path / "directory", content + checksum_of(content))


def raise_version(path: Path, identity: bytes, salt: int) -> None:
    """From now on older programs must refuse this directory."""
    if int.from_bytes((path / "directory").read_bytes()[8:10], "little") < FORMAT_VERSION:
        write_identity(path, identity, salt, FORMAT_VERSION)
