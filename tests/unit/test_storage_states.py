"""A checkpoint's files change places with those of the one before, which are written anew."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from storage.__main__ import damaged_files
from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from storage._fs import Files
from storage.keys import ServerKeys
from tests.crash.faulty import FaultyFiles
from tests.crash.workload import TINY

STREAMS = 6
ROUNDS = 4
SECRET = b"what the snapshot says"


def message(seq: int) -> tuple[int, int, bytes, bytes, bytes]:
    return seq, seq, b"s", b"", b"m%d" % seq


def states(path: Path) -> dict[str, int]:
    return {file.name: file.stat().st_ino for file in sorted(path.glob("streams/*/state.*"))}


def opened(path: Path, files: Files | None = None, **settings: Any) -> DataDirectory:
    return DataDirectory(path, files, threaded=False, **TINY, **settings)


def go_on(directory: DataDirectory, home: BlockHome) -> None:
    home.append_many([message(home.last_seq + 1)])
    directory.wait(directory.commit())


def test_from_the_third_checkpoint_on_no_file_is_made_or_removed(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    home = directory.create_stream({"name": "S"})
    seen = []
    for _ in range(5):
        go_on(directory, home)
        directory.checkpoint_now(home, False)
        seen.append(states(tmp_path))
    assert sorted(seen[0]) == ["state.a", "state.b"]
    assert sorted(seen[1]) == ["state.a", "state.a.new", "state.b", "state.b.new"]
    assert seen[1] == seen[3] != seen[2] == seen[4]
    assert set(seen[1].values()) == set(seen[2].values())
    directory.close()


def test_a_state_that_got_shorter_holds(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    home = directory.create_stream({"name": "S"})
    for size in (5000, 9000, 10, 3, 7000, 1):
        home.snapshot_source = lambda clean, size=size: b"x" * size
        go_on(directory, home)
        directory.checkpoint_now(home, False)
        assert damaged_files(tmp_path) == []
    directory.close()


def test_what_a_state_said_in_the_clear_is_gone_when_it_is_encrypted(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    home = directory.create_stream({"name": "S"})
    home.snapshot_source = lambda clean: SECRET
    for _ in range(3):
        go_on(directory, home)
        directory.checkpoint_now(home, False)
    directory.close()
    said = [file.name for file in tmp_path.glob("streams/*/*") if SECRET in file.read_bytes()]
    assert sorted(said) == ["state.a", "state.a.new", "state.b", "state.b.new"]
    directory = opened(tmp_path, keys=ServerKeys("a key"))
    directory.homes[home.group].snapshot_source = lambda clean: SECRET
    directory.close()
    assert not [file for file in tmp_path.rglob("*.*") if SECRET in file.read_bytes()]


def write_rounds(path: Path, files: FaultyFiles) -> dict[int, int]:
    """By stream, how many messages are durable when the disk stops."""
    durable: dict[int, int] = {}
    directory = None
    try:
        directory = opened(path, files)
        homes = [directory.create_stream({"name": str(number)}) for number in range(STREAMS)]
        for done in range(1, ROUNDS + 1):
            for home in homes:
                home.append_many([message(done)])
            directory.wait(directory.commit())
            durable = dict.fromkeys((home.group for home in homes), done)
            directory.checkpoint_all(homes, False)
        directory.close()
    except OSError:
        if directory is not None:
            directory.close(clean=False)
    return durable


@pytest.mark.feature("9.024")
@pytest.mark.parametrize("seed", range(3))
def test_power_is_lost_while_many_states_change_places(tmp_path: Path, seed: int) -> None:
    probe = FaultyFiles()
    assert set(write_rounds(tmp_path / "whole", probe).values()) == {ROUNDS}
    probe.release()
    for stop_at in range(1, probe.syncs + 1):
        path = tmp_path / str(stop_at)
        files = FaultyFiles(stop_at=stop_at)
        durable = write_rounds(path, files)
        files.crash(random.Random(seed * 1000 + stop_at))
        directory = opened(path)
        assert directory.damage == []
        for group, count in durable.items():
            home = directory.homes[group]
            assert home.damage == [], stop_at
            assert home.get_all()[:count] == [message(seq) for seq in range(1, count + 1)]
        directory.close()
