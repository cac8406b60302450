"""Encryption at rest: nothing in the clear, keys that change, keys that are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage._cipher import StreamKey, aes_available
from storage._directory import DataDirectory
from storage.filestore import FileStores
from storage.keys import DirectoryKeys, FileCipher, KeyProblem, ServerKeys

SIZES: dict[str, Any] = {
    "segment_size": 64 << 10,
    "log_bytes_max": 256 << 10,
    "block_size_min": 4 << 10,
    "block_size_max": 16 << 10,
}
CIPHERS = [
    "chacha",
    pytest.param("aes", marks=pytest.mark.skipif(not aes_available(), reason="no AES")),
]
SECRETS = (b"very secret words", b"a.hidden.subject", b"X-Hidden: header", b"hidden-setting")


def message(seq: int) -> tuple[int, int, bytes, bytes, bytes]:
    header = b"NATS/1.0\r\nX-Hidden: header\r\n\r\n" if seq % 3 == 0 else b""
    return seq, seq * 10, b"a.hidden.subject.%d" % (seq % 5), header, b"very secret words %d" % seq


def write(directory: DataDirectory, count: int) -> None:
    home = next(iter(directory.homes.values()), None) or directory.create_stream(
        {"name": "S", "detail": "hidden-setting"}
    )
    first = home.last_seq + 1
    for seq in range(first, first + count):
        home.append_many([message(seq)])
        if seq % 16 == 0:
            directory.wait(directory.commit())
    directory.wait(directory.commit())
    directory.wait_applied()


def everything(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file())


def reopened(path: Path, keys: ServerKeys | None) -> DataDirectory:
    return DataDirectory(path, keys=keys, **SIZES)


@pytest.mark.feature("9.032")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("cipher", CIPHERS)
def test_nothing_in_the_clear_and_all_comes_back(tmp_path: Path, cipher: str, clean: bool) -> None:
    keys = ServerKeys("the key", cipher=cipher)
    directory = reopened(tmp_path, keys)
    write(directory, 400)
    home = directory.homes[1]
    assert home.get(3) == message(3)
    assert home.pinned(400)[0] == message(400)
    directory.close(clean)
    stored = everything(tmp_path)
    for secret in SECRETS:
        assert secret not in stored
    directory = reopened(tmp_path, keys)
    assert directory.homes[1].get_all() == [message(seq) for seq in range(1, 401)]
    assert directory.settings_of(directory.homes[1])["detail"] == "hidden-setting"
    assert not directory.damage
    assert not directory.homes[1].damage
    directory.close()


@pytest.mark.feature("9.033")
def test_a_wrong_key_leaves_the_stream_alone(tmp_path: Path) -> None:
    right = ServerKeys("right")
    directory = reopened(tmp_path, right)
    write(directory, 200)
    directory.close(clean=False)
    for keys in (ServerKeys("wrong"), None, ServerKeys("wrong", previous="also wrong")):
        directory = reopened(tmp_path, keys)
        assert not directory.homes
        assert not directory.damage
        assert [label for home, label in directory.locked.values()] == ["S"]
        other = directory.create_stream({"name": "T"})
        other.append_many([message(1)])
        directory.wait(directory.commit())
        directory.delete_stream(other)
        directory.close()
    directory = reopened(tmp_path, right)
    assert directory.homes[1].get_all() == [message(seq) for seq in range(1, 201)]
    assert not directory.locked
    directory.close()


@pytest.mark.feature("9.033")
@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_rotated_key_opens_with_the_previous_one_and_from_then_on_alone(
    tmp_path: Path, cipher: str
) -> None:
    directory = reopened(tmp_path, ServerKeys("old"))
    write(directory, 50)
    directory.close()
    reopened(tmp_path, ServerKeys("new", previous="old", cipher=cipher)).close()
    directory = reopened(tmp_path, ServerKeys("new", cipher=cipher))
    write(directory, 50)
    assert directory.homes[1].get_all() == [message(seq) for seq in range(1, 101)]
    directory.close()
    directory = reopened(tmp_path, ServerKeys("old"))
    assert not directory.homes
    assert directory.locked
    directory.close()


@pytest.mark.feature("9.033")
@pytest.mark.parametrize("clean", [True, False])
def test_a_plain_stream_is_encrypted_from_the_next_start_on(tmp_path: Path, clean: bool) -> None:
    directory = reopened(tmp_path, None)
    write(directory, 100)
    directory.close(clean)
    keys = ServerKeys("the key")
    directory = reopened(tmp_path, keys)
    write(directory, 100)
    directory.close(clean)
    logged = b"".join(file.read_bytes() for file in (tmp_path / "log").iterdir())
    assert not any(secret in logged for secret in SECRETS)
    assert b"hidden-setting" not in everything(tmp_path)
    directory = reopened(tmp_path, keys)
    assert directory.homes[1].get_all() == [message(seq) for seq in range(1, 201)]
    directory.close()


def test_indexes_come_back_from_an_encrypted_snapshot(tmp_path: Path) -> None:
    keys = ServerKeys("the key")
    stores = FileStores(tmp_path, keys=keys, **SIZES)
    store = stores.create({"name": "S"})
    for number in range(300):
        store.store(f"a.hidden.subject.{number % 7}", b"", b"very secret words", number)
    stores.wait(stores.commit())
    assert store.delete(5, erase=True)
    assert store.delete(6)
    stores.close()
    assert not any(secret in everything(tmp_path) for secret in SECRETS)
    stores = FileStores(tmp_path, keys=keys, **SIZES)
    store = stores.stores[1]
    assert (store.messages, store.subject_count, store.load(5)) == (298, 7, None)
    assert store.load(7).payload == b"very secret words"  # type: ignore[union-attr]
    stores.close()


def test_a_record_moved_to_another_stream_is_not_served(tmp_path: Path) -> None:
    keys = ServerKeys("the key")
    directory = reopened(tmp_path, keys)
    write(directory, 20)
    home = directory.homes[1]
    number = home.describe_blocks()[0]["number"]
    directory.close()
    path = tmp_path / "streams" / f"{1:016x}" / f"{number:016x}.blk"
    content = bytearray(path.read_bytes())
    from storage._codec import checksum, decode

    size, *_ = decode(bytes(content), 64, home.salt) or (0,)
    content[64 + 60] ^= 1  # inside the encrypted body; the checksum is made to fit again
    content[64 + size - 8 : 64 + size] = checksum(
        bytes(content[64 : 64 + size - 8]), home.salt
    ).to_bytes(8, "little")
    path.write_bytes(content)
    directory = reopened(tmp_path, keys)
    home = directory.homes[1]
    assert home.get(1) is None
    assert home.get(2) == message(2)
    assert home.lost == [[1, 1]]
    assert "not encrypted with this stream's key" in home.damage[0]
    directory.close()


def test_nonces_never_repeat_over_restarts(tmp_path: Path) -> None:
    keys = ServerKeys("the key")
    seen: set[bytes] = set()
    for _ in range(4):
        directory = reopened(tmp_path, keys)
        write(directory, 30)
        directory.close()
    directory = reopened(tmp_path, keys)
    salt = directory.homes[1].salt
    directory.close()
    from storage._codec import decode

    for path in (tmp_path / "streams" / f"{1:016x}").glob("*.blk"):
        content, at = path.read_bytes(), 64
        while (found := decode(content, at, salt)) is not None:
            nonce = content[at + 28 : at + 40]
            assert nonce not in seen
            seen.add(nonce)
            at += found[0]
    assert len(seen) == 120


def test_the_servers_own_lines() -> None:
    keys = DirectoryKeys(ServerKeys("new", previous="old"), b"i" * 16)
    old = DirectoryKeys(ServerKeys("old"), b"i" * 16)
    lines = FileCipher(keys, "consumers")
    assert lines.unpack(lines.pack(b'{"a":1}')) == b'{"a":1}'
    assert lines.unpack(FileCipher(old, "consumers").pack(b"{}")) == b"{}"
    assert lines.unpack(FileCipher(keys, "memory").pack(b"{}")) is None
    assert FileCipher(old, "consumers").unpack(lines.pack(b"{}")) is None
    assert FileCipher(None, "consumers").unpack(lines.pack(b"{}")) is None
    assert FileCipher(None, "consumers").unpack(b"{}") == b"{}"


def test_refusals() -> None:
    with pytest.raises(KeyProblem, match="not one of chacha, aes"):
        ServerKeys("k", cipher="rot13")
    with pytest.raises(ValueError, match="not a stream key"):
        StreamKey(b"short", 1)
    assert "the key" not in repr(ServerKeys("the key", "also secret"))
