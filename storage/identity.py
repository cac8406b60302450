"""The `directory` file: which data directory this is, and who may read it (FORMAT.md, 1)."""

from __future__ import annotations

import os
from pathlib import Path

from storage._codec import checksum
from storage.fs import NotUsable, names_in, read_if_there, write_file
from storage.meta import decode_meta

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


def need_identity(path: Path, damage: list[str]) -> tuple[bytes, int]:
    """`(identity, salt)`, made when there is none yet; NotUsable when there must have been one.

    No frame of a log holds without its salt, and a start removes a log that it has read.
    """
    if (path / "directory").exists():
        return read_identity(path)
    streams = names_in(f"{path}/streams") or []
    missing = f"{path}/directory is missing: put it back from a copy."
    if any(name.endswith((".seg", ".kept")) for name in names_in(f"{path}/log") or []):
        raise NotUsable(
            f"{missing} Without it {path}/log cannot be read: move that away to start with what"
            " has reached the streams' own files"
        )
    if any(is_encrypted(path / "streams" / name) for name in streams):
        raise NotUsable(f"{missing} Without it no key opens the encrypted streams")
    if streams:
        damage.append(f"{path}/directory was missing, and a log: made anew")
    identity, salt = os.urandom(16), int.from_bytes(os.urandom(8), "little")
    write_identity(path, identity, salt, PLAIN_VERSION)
    return identity, salt


def is_encrypted(folder: Path) -> bool:
    """Whether the stream's key is bound to the directory's identity."""
    meta = decode_meta(read_if_there(folder / "meta"))
    return meta is not None and meta.cipher != 0


def write_identity(path: Path, identity: bytes, salt: int, version: int) -> None:
    content = b"MARTDIR1" + version.to_bytes(8, "little") + identity
    content += salt.to_bytes(8, "little") + bytes(16)
    write_file(path / "directory", content + checksum_of(content))


def raise_version(path: Path, identity: bytes, salt: int) -> None:
    """From now on older programs must refuse this directory."""
    if int.from_bytes((path / "directory").read_bytes()[8:10], "little") < FORMAT_VERSION:
        write_identity(path, identity, salt, FORMAT_VERSION)
