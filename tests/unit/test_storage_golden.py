"""What earlier versions wrote is read; what later ones will write is refused and left alone."""

from __future__ import annotations

import json
import zlib
from base64 import b85decode
from pathlib import Path

import pytest

from storage._cipher import aes_available
from storage._codec import checksum
from storage._directory import DataDirectory
from storage.fs import NotUsable
from storage.keys import ServerKeys
from tests.golden.content import KEY, LAST, RESERVED, expected
from tests.golden.make import FOLDER, VARIANTS

FILES = sorted(FOLDER.glob("storage-*.json"))


def unpacked(source: Path, target: Path) -> Path:
    for name, text in json.loads(source.read_text()).items():
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(zlib.decompress(b85decode(text)))
    return target


def content_of(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != "lock"
    }


def test_every_variant_has_its_file() -> None:
    assert {file.stem.removeprefix("storage-") for file in FILES} >= set(VARIANTS)


@pytest.mark.parametrize("source", FILES, ids=lambda file: file.stem)
def test_is_read_as_it_was_written(source: Path, tmp_path: Path) -> None:
    cipher = "aes" if source.stem.endswith("aes") else "chacha"
    if cipher == "aes" and not aes_available():
        pytest.skip("no AES instructions here")
    encrypted = source.stem.endswith(("aes", "chacha"))
    keys = ServerKeys(KEY, cipher=cipher) if encrypted else None
    path = unpacked(source, tmp_path / "data")
    for _ in range(2):  # the second time what the first one recovered and wrote
        directory = DataDirectory(path, threaded=False, keys=keys)
        home = directory.homes[1]
        found = home.get_all()
        assert [entry for entry in found if len(entry) == 5] == expected()
        assert [entry for entry in found if len(entry) == 2] == [RESERVED]
        assert home.last_seq == LAST
        assert (directory.damage, home.damage, home.lost) == ([], [], [])
        assert directory.settings_of(home)["detail"] == "as it was"
        framed = any(block["framed"] for block in home.describe_blocks())
        assert framed == source.stem.startswith(("storage-zstd", "storage-s2", "storage-lz4"))
        directory.close()


def test_a_newer_directory_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = unpacked(FOLDER / "storage-zstd.json", tmp_path / "data")
    identity = bytearray((path / "directory").read_bytes())
    identity[8] = 3
    identity[56:] = checksum(bytes(identity[:56])).to_bytes(8, "little")
    (path / "directory").write_bytes(identity)
    before = content_of(path)
    with pytest.raises(NotUsable, match="format version 3; this Martlet knows up to 2"):
        DataDirectory(path)
    assert content_of(path) == before


def test_a_stream_of_a_newer_version_is_not_loaded_and_left_alone(tmp_path: Path) -> None:
    path = unpacked(FOLDER / "storage-plain.json", tmp_path / "data")
    meta = path / "streams" / f"{1:016x}" / "meta"
    content = bytearray(meta.read_bytes())
    content[8] = 9
    content[-8:] = checksum(bytes(content[:-8])).to_bytes(8, "little")
    meta.write_bytes(content)
    before = content_of(path / "streams")
    directory = DataDirectory(path, threaded=False)
    assert directory.homes == {}
    assert "of a newer version (9)" in directory.damage[0]
    directory.close()
    assert content_of(path / "streams") == before
