"""`python -m storage inspect|verify|repair DIR`: what is in a data directory, and is it sound.

Encrypted streams are opened with the server's key, from `--key-file` or the environment variable
MARTLET_ENCRYPTION_KEY; without it they are checked as far as that goes without reading them.

Exit codes: 0 sound, 1 damage was found, 2 the directory cannot be used (missing, in use, newer,
not readable).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage._blockhome import BlockHome
from storage._codec import checksum
from storage._directory import DataDirectory
from storage._replay import Replay
from storage.chain import swapped_blocks
from storage.fs import NotUsable, read_if_there, take_lock_to_read
from storage.identity import read_identity
from storage.keys import DirectoryKeys, KeyProblem, ServerKeys
from storage.meta import decode_meta, group_of, trouble_of, unlock

SOUND, DAMAGED, UNUSABLE = 0, 1, 2
KEY_VARIABLE = "MARTLET_ENCRYPTION_KEY"
CIPHER_NAMES = {0: "plain", 1: "chacha", 2: "aes"}


def progress(done: int, total: int, what: str) -> None:
    """One line that overwrites itself, on a terminal only."""
    if sys.stderr.isatty():
        filled = 30 * done // max(total, 1)
        bar = "#" * filled + "." * (30 - filled)
        end = "\n" if done == total else ""
        print(f"\r[{bar}] {done}/{total} {what[:40]:40}", end=end, file=sys.stderr, flush=True)


def server_keys(key_file: Path | None) -> ServerKeys | None:
    """The key to read with; nothing is converted to it."""
    text = os.environ.get(KEY_VARIABLE, "")
    if key_file is not None:
        text = key_file.read_text().rstrip("\n")
    return ServerKeys(text, convert=False) if text else None


def describe_stream(folder: Path, keys: DirectoryKeys | None) -> dict[str, Any]:
    meta = decode_meta((folder / "meta").read_bytes()) if (folder / "meta").exists() else None
    opened = unlock(meta, keys) if meta is not None else None
    blocks = sorted(folder.glob("*.blk"))
    return {
        "group": folder.name,
        "label": meta.label if meta is not None else "",
        "cipher": CIPHER_NAMES[meta.cipher] if meta is not None else None,
        "key_fits": opened is not None if meta is not None and meta.cipher else None,
        "settings": opened.settings if opened is not None else None,
        "blocks": len(blocks),
        "framed_blocks": sum(is_framed(block) for block in blocks),
        "bytes": sum(block.stat().st_blocks * 512 for block in blocks),
    }


def is_framed(block: Path) -> bool:
    with block.open("rb") as file:
        return file.read(12)[10:11] == b"\1"


def stream_folders(path: Path) -> list[Path]:
    return sorted(
        entry for entry in (path / "streams").iterdir() if group_of(entry.name) is not None
    )


def damaged_files(path: Path) -> list[str]:
    """About metas and states that do not hold: a start is content with one state of the two."""
    found = []
    for folder in stream_folders(path):
        meta = decode_meta(content := read_if_there(folder / "meta"))
        if meta is None:
            found.append(f"{folder}/meta {trouble_of(content)}")
            continue
        for state in sorted(folder.glob("state.[ab]")):
            content = state.read_bytes()
            if checksum(content[:-8], meta.salt) != int.from_bytes(content[-8:], "little"):
                found.append(f"{state}: does not hold")
    return found


def describe_files(path: Path, server: ServerKeys | None) -> dict[str, Any]:
    """What is there, without changing or recovering anything."""
    identity, salt = read_identity(path)
    keys = DirectoryKeys(server, identity) if server is not None else None
    log = Replay(str(path / "log"), identity, salt)
    metas = [decode_meta(file.read_bytes()) for file in (path / "streams").glob("*/meta")]
    metas += [decode_meta(content) for content in log.metas().values()]
    log.mend({meta.group: meta.salt for meta in metas if meta is not None})
    folders = stream_folders(path)
    replayed = log.first_indexes()
    swapped = [
        sentence
        for folder in folders
        if (meta := decode_meta(read_if_there(folder / "meta"))) is not None
        for sentence in swapped_blocks(folder, meta.group, meta.salt, meta.group in replayed)
    ]
    streams = [describe_stream(folder, keys) for folder in folders]
    return {
        "identity": identity.hex(),
        "log_segments": len(log.paths),
        "log_frames": log.count,
        "damage": [f"{name} at {offset}: {what}" for name, offset, what in log.damage]
        + damaged_files(path)
        + swapped,
        "streams": streams,
    }


def stream_line(stream: dict[str, Any]) -> str:
    name = stream["settings"]
    if stream["key_fits"] is False:
        name = f"{stream['label']}: encrypted, and no key that fits was given"
    elif name is None:
        name = "meta does not hold"
    framed = f" ({stream['framed_blocks']} framed)" if stream["framed_blocks"] else ""
    cipher = f", {stream['cipher']}" if stream["cipher"] not in (None, "plain") else ""
    return (
        f"{stream['group']}: {stream['blocks']} blocks{framed}, {stream['bytes']:,} bytes"
        f"{cipher}, {name}"
    )


def inspect(path: Path, as_json: bool, server: ServerKeys | None) -> int:
    found = describe_files(path, server)
    if as_json:
        print(json.dumps(found, indent=2))
        return DAMAGED if found["damage"] else SOUND
    print(f"{path}: identity {found['identity']}")
    print(f"log: {found['log_segments']} segments, {found['log_frames']} frames to replay")
    for sentence in found["damage"]:
        print(f"  damaged: {sentence}")
    for stream in found["streams"]:
        print(stream_line(stream))
    return DAMAGED if found["damage"] else SOUND


def blocks_told(before: int, blocks: int, what: str) -> Callable[[int, int], None]:
    return lambda done, _: progress(before + done, blocks, what)


def check_streams(directory: DataDirectory) -> dict[str, Any]:
    """Read every record of every stream."""
    streams = {}
    locked = {group: home for group, (home, _) in directory.locked.items()}
    everyone = directory.homes | locked
    blocks = sum(home.block_count for home in everyone.values())
    before = 0
    for group, home in everyone.items():
        home.check_all(blocks_told(before, blocks, home.path))
        before += home.block_count
        messages = sum(block["messages"] - block["dead"] for block in home.describe_blocks())
        streams[f"{group:016x}"] = {
            "messages": messages,
            "first_seq": home.floor,
            "last_seq": home.last_seq,
            "key_fits": group not in locked,
            "lost": home.lost,
            "damage": home.damage,
        }
    return {"damage": directory.damage, "streams": streams}


def report(found: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        for sentence in found["damage"]:
            print(f"damaged: {sentence}")
        for group, stream in found["streams"].items():
            print(
                f"{group}: {stream['messages']:,} messages, sequences "
                f"{stream['first_seq']}-{stream['last_seq']}"
                + ("" if stream["key_fits"] else ", encrypted: not read with a key")
            )
            for sentence in stream["damage"]:
                print(f"  damaged: {sentence}")
            for first, last in stream["lost"]:
                print(f"  lost: {first} to {last}")
    hurt = found["damage"] or any(s["damage"] or s["lost"] for s in found["streams"].values())
    print("damage was found" if hurt else "sound", file=sys.stderr)
    return DAMAGED if hurt else SOUND


def copy_told(path: Path, copy: Path) -> None:
    files = sum(file.is_file() for file in path.rglob("*"))
    done = 0

    def copied(source: str, target: str) -> None:
        nonlocal done
        shutil.copy2(source, target)
        done += 1
        progress(min(done, files), files, source)

    ignored = shutil.ignore_patterns("*.free", "lock")
    shutil.copytree(path, copy, ignore=ignored, copy_function=copied)


def verify(path: Path, as_json: bool, server: ServerKeys | None) -> int:
    """Recover a copy and read all of it: the directory itself stays as it is."""
    read_identity(path)
    seen = damaged_files(path)
    with tempfile.TemporaryDirectory(prefix="martlet-verify-", dir=path.parent) as folder:
        copy = Path(folder, "copy")
        copy_told(path, copy)
        directory = DataDirectory(copy, keys=server)
        try:
            found = check_streams(directory)
            found["damage"] += seen
            return report(found, as_json)
        finally:
            directory.close(clean=False)


def repair(path: Path, as_json: bool, sure: bool, server: ServerKeys | None) -> int:
    """Recover in place: what cannot be read is left out and stays reported as lost."""
    if not sure:
        print("repair writes to the directory: `verify` says what it would lose; then add --yes")
        return UNUSABLE
    read_identity(path)
    seen = damaged_files(path)
    directory = DataDirectory(path, keys=server)
    try:
        found = check_streams(directory)
        found["damage"] += seen
        for home in directory.homes.values():
            save_findings(directory, home, seen)
    finally:
        directory.close()
    return report(found, as_json)


def save_findings(directory: DataDirectory, home: BlockHome, seen: list[str]) -> None:
    """What was found lost goes into the stream's state, so that it is reported from now on."""
    if home.lost or home.damage or any(name.startswith(home.path) for name in seen):
        directory.checkpoint_now(home, True)


def data_directory(path: Path) -> Path:
    """Itself, or the one that a server keeps below what its -sd names."""
    for place in (path, path / "jetstream" / "data", path / "data"):
        if (place / "directory").exists():
            return place
    raise NotUsable(f"{path} is not a Martlet data directory: it has no `directory` file")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m storage", description=__doc__)
    parser.add_argument("action", choices=("inspect", "verify", "repair"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--key-file", type=Path, help="a file that holds the server's key")
    parser.add_argument("--yes", action="store_true", help="let repair write")
    arguments = parser.parse_args()
    try:
        path = data_directory(arguments.directory)
        server = server_keys(arguments.key_file)
        if arguments.action == "repair":
            return repair(path, arguments.json, arguments.yes, server)
        lock = take_lock_to_read(path)
        try:
            look = inspect if arguments.action == "inspect" else verify
            return look(path, arguments.json, server)
        finally:
            if lock is not None:
                os.close(lock)
    except (NotUsable, KeyProblem, OSError) as error:
        print(error, file=sys.stderr)
        return UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
