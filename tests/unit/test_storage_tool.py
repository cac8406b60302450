"""`python -m storage`: exit codes and words, as an operator sees them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage._directory import DataDirectory
from storage.fs import NotUsable, take_lock_to_read
from storage.keys import ServerKeys


def tool(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "storage", *words], capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def test_inspect_verify_repair(tmp_path: Path) -> None:
    data = tmp_path / "data"
    directory = DataDirectory(data)
    home = directory.create_stream({"name": "orders"})
    home.append_many([(seq, seq, b"s", b"", b"m%d" % seq) for seq in range(1, 101)])
    directory.wait(directory.commit())
    assert tool("inspect", str(data))[0] == 2, "in use"
    directory.close()

    code, words = tool("inspect", str(data))
    assert (code, "orders" in words) == (0, True)
    code, words = tool("verify", str(data))
    assert (code, "100 messages" in words) == (0, True), words

    block = next(Path(home.path).glob("*.blk"))
    content = bytearray(block.read_bytes())
    content[content.index(b"m50")] ^= 1
    block.write_bytes(content)
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    code, words = tool("verify", str(data))
    assert (code, "lost: 50 to 50" in words) == (1, True), words
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    assert tool("repair", str(data))[0] == 2, "asks first"
    assert tool("repair", str(data), "--yes")[0] == 1
    directory = DataDirectory(data)
    assert directory.homes[1].lost == [[50, 50]]
    assert len(directory.homes[1].get_all()) == 99
    directory.close()


def test_not_a_data_directory(tmp_path: Path) -> None:
    code, words = tool("verify", str(tmp_path))
    assert (code, "not a Martlet data directory" in words) == (2, True)
    assert tool("--help")[0] == 0


def test_what_is_no_streams_is_passed_over(tmp_path: Path) -> None:
    """A file system's own folder, or a file that somebody left."""
    directory = DataDirectory(tmp_path / "data")
    directory.create_stream({"name": "s"})
    directory.close()
    streams = tmp_path / "data" / "streams"
    (streams / "lost+found").mkdir()
    (streams / ".left").write_text("by somebody")
    for action in ("inspect", "verify"):
        assert tool(action, str(tmp_path / "data"))[0] == 0
    directory = DataDirectory(tmp_path / "data")
    assert directory.damage == []
    assert list(directory.homes) == [1]
    directory.close()
    assert (streams / "lost+found").is_dir()
    assert (streams / ".left").exists()


def test_what_the_machine_refuses_is_said(tmp_path: Path) -> None:
    DataDirectory(tmp_path / "data").close()
    (tmp_path / "data" / "streams").rmdir()
    code, words = tool("inspect", str(tmp_path / "data"))
    assert (code, "Traceback" in words, "No such file" in words) == (2, False, True)


def test_looking_writes_nothing_and_keeps_others_out(tmp_path: Path) -> None:
    path = tmp_path / "data"
    DataDirectory(path).close()
    (path / "lock").chmod(0o400)
    assert tool("inspect", str(path))[0] == 0
    held = take_lock_to_read(path)
    assert held is not None
    with pytest.raises(NotUsable, match="in use"):
        take_lock_to_read(path)
    os.close(held)
    (path / "lock").unlink()
    assert tool("inspect", str(path))[0] == 0
    assert not (path / "lock").exists()


def test_the_directory_may_be_what_the_server_was_given(tmp_path: Path) -> None:
    DataDirectory(tmp_path / "jetstream" / "data").close()
    for given in (tmp_path, tmp_path / "jetstream", tmp_path / "jetstream" / "data"):
        assert tool("inspect", str(given))[0] == 0


def test_an_encrypted_directory(tmp_path: Path) -> None:
    data, key_file = tmp_path / "data", tmp_path / "key"
    key_file.write_text("the key\n")
    directory = DataDirectory(
        data, keys=ServerKeys("the key", cipher="chacha"), codec_of=lambda settings: "zstd"
    )
    home = directory.create_stream({"name": "orders", "detail": "hidden"})
    home.append_many([(seq, seq, b"s", b"", b"m%d" % seq * 20) for seq in range(1, 1001)])
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.wait_rewritten()
    directory.close()
    meta = (Path(home.path) / "meta").read_bytes()

    code, words = tool("inspect", str(data))
    assert (code, "orders: encrypted, and no key that fits" in words) == (0, True), words
    code, words = tool("inspect", str(data), "--key-file", str(key_file))
    assert (code, "hidden" in words, "1 framed" in words) == (0, True, True), words
    code, words = tool("verify", str(data))
    assert (code, "1,000 messages" in words, "not read with a key" in words) == (0, True, True)
    code, words = tool("verify", str(data), "--key-file", str(key_file))
    assert (code, "not read with a key" in words) == (0, False), words

    block = next(path for path in Path(home.path).glob("*.blk") if path.read_bytes()[10] & 1)
    content = bytearray(block.read_bytes())
    content[200] ^= 1
    block.write_bytes(content)
    code, words = tool("verify", str(data), "--key-file", str(key_file))
    assert (code, "lost: 1 to" in words) == (1, True), words
    assert tool("repair", str(data), "--key-file", str(key_file), "--yes")[0] == 1
    assert (Path(home.path) / "meta").read_bytes() == meta, "repair converts nothing"
