"""Every flipped bit and every truncation of every file: seen, never served, nothing else lost."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage._directory import DataDirectory
from storage.fs import NotUsable

Message = tuple[int, int, bytes, bytes, bytes]
SIZES = {"segment_size": 4096, "block_size_min": 700, "block_size_max": 700, "threaded": False}
WANTED: list[Message] = [
    (seq, seq, b"s.%d" % (seq % 3), b"", b"payload %d" % seq) for seq in range(1, 25)
]


def fill(path: Path, clean: bool) -> None:
    directory = DataDirectory(path, **SIZES)  # type: ignore[arg-type]
    home = directory.create_stream({"name": "s"})
    for start in range(0, len(WANTED), 4):
        home.append_many(WANTED[start : start + 4])
        directory.wait(directory.commit())
    directory.wait_applied()
    directory.close(clean=clean)


def reopened(path: Path) -> tuple[list[Message], list[list[int]], list[str]]:
    """What is served, what is reported lost, and every sentence about damage."""
    directory = DataDirectory(path, **SIZES)  # type: ignore[arg-type]
    try:
        if not directory.homes:
            return [], [], directory.damage
        home = directory.homes[1]
        home.get_all()
        return home.get_all(), home.lost, directory.damage + home.damage
    finally:
        directory.close(clean=False)


def damaged_copies(source: Path, target: Path, name: str, step: int) -> Iterator[str]:
    """Flip bits, one in each `step`-th byte and another bit each time, then cut the file short."""
    content = (source / name).read_bytes()
    used = len(content.rstrip(b"\0")) + 8
    for at in range(0, min(used, len(content)), step):
        shutil.copytree(source, target)
        damaged = bytearray(content)
        damaged[at] ^= 1 << (at % 8)
        (target / name).write_bytes(damaged)
        yield f"{name} byte {at} flipped"
        shutil.rmtree(target)
    for size in range(0, min(used, len(content)), step * 3):
        shutil.copytree(source, target)
        (target / name).write_bytes(content[:size])
        yield f"{name} cut to {size}"
        shutil.rmtree(target)


def judge(path: Path, where: str, may_lose: bool) -> None:
    served, lost, damage = reopened(path)
    assert all(message in WANTED for message in served), f"{where}: served what was never stored"
    missing = {message[0] for message in WANTED} - {message[0] for message in served}
    reported = {seq for first, last in lost for seq in range(first, last + 1)}
    assert missing <= reported, f"{where}: {missing - reported} missing without a word ({damage})"
    if not may_lose:
        assert not missing, f"{where}: {missing} lost ({damage})"
    elif missing:
        assert damage, where


@pytest.mark.feature("9.027")
@pytest.mark.parametrize("number", [1, 2])
def test_damaged_block_after_a_clean_stop(tmp_path: Path, number: int) -> None:
    fill(tmp_path / "source", clean=True)
    name = f"streams/{1:016x}/{number:016x}.blk"
    sealed = (tmp_path / "source" / name).read_bytes()
    for where in damaged_copies(tmp_path / "source", tmp_path / "copy", name, 5):
        judge(tmp_path / "copy", where, may_lose=True)
        served, _, _ = reopened(tmp_path / "copy")
        if "flipped" in where and int(where.split()[2]) >= 64:
            assert len(WANTED) - len(served) <= 1, f"{where}: one bit cost more than one message"
    assert sealed


@pytest.mark.parametrize("name", ["state.a", "state.b"])
def test_one_damaged_state_loses_nothing(tmp_path: Path, name: str) -> None:
    fill(tmp_path / "source", clean=True)
    file = f"streams/{1:016x}/{name}"
    for where in damaged_copies(tmp_path / "source", tmp_path / "copy", file, 7):
        judge(tmp_path / "copy", where, may_lose=False)


def test_both_states_damaged_loses_no_message(tmp_path: Path) -> None:
    fill(tmp_path / "data", clean=True)
    for name in ("state.a", "state.b"):
        (tmp_path / "data" / "streams" / f"{1:016x}" / name).write_bytes(b"no")
    served, lost, damage = reopened(tmp_path / "data")
    assert (served, lost) == (WANTED, [])
    assert any("state does not hold" in sentence for sentence in damage)


def test_damaged_log_after_a_kill_loses_nothing_that_reached_a_block(tmp_path: Path) -> None:
    fill(tmp_path / "source", clean=False)
    names = sorted(path.name for path in (tmp_path / "source" / "log").glob("*.seg"))
    for segment in names[:1]:
        for where in damaged_copies(tmp_path / "source", tmp_path / "copy", f"log/{segment}", 9):
            judge(tmp_path / "copy", where, may_lose=False)


@pytest.mark.feature("9.028")
def test_damaged_meta_leaves_the_stream_unloaded_and_untouched(tmp_path: Path) -> None:
    fill(tmp_path / "data", clean=True)
    folder = tmp_path / "data" / "streams" / f"{1:016x}"
    content = bytearray((folder / "meta").read_bytes())
    content[20] ^= 4
    (folder / "meta").write_bytes(content)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    served, _, damage = reopened(tmp_path / "data")
    assert served == []
    assert any("not loaded" in sentence for sentence in damage)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_damaged_identity_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "data", clean=True)
    content = bytearray((tmp_path / "data" / "directory").read_bytes())
    content[20] ^= 1
    (tmp_path / "data" / "directory").write_bytes(content)
    with pytest.raises(NotUsable, match="does not hold"):
        DataDirectory(tmp_path / "data")
