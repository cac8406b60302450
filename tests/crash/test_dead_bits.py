"""Deleted messages of a damaged block stay deleted: their bits are by slot."""

import random
import select
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from tests.crash.damage import block_parts, memory_folder
from tests.crash.faulty import FaultyFiles

Message = tuple[int, int, bytes, bytes, bytes]
LARGE: dict[str, Any] = {
    "block_size_min": 256 << 10,
    "block_size_max": 256 << 10,
    "segment_size": 1 << 20,
    "threaded": False,
}
CODECS = ["none", "zstd"]


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder / "data"


def opened(path: Path, codec: str = "none", **options: Any) -> tuple[DataDirectory, BlockHome]:
    directory = DataDirectory(path, codec_of=lambda settings: codec, **LARGE | options)
    return directory, directory.homes[1] if directory.homes else directory.create_stream({})


def message(seq: int, size: int) -> Message:
    return seq, seq, b"s", b"", (b"%d " % seq).ljust(size, b".")


def settle(directory: DataDirectory) -> None:
    for _ in range(2):
        directory.wait(directory.commit())
        directory.wait_applied()
        directory.wait_rewritten()
        directory.maintain()


def filled(
    path: Path, sequences: list[int], deleted: set[int], codec: str, size: int
) -> tuple[Path, bytes]:
    """One sealed block of these messages, and what is deleted only a bit in the state."""
    directory, home = opened(path, codec)
    home.append_many([message(seq, size) for seq in sequences])
    home.append_many([message(sequences[-1] + 1, 255 << 10)])
    settle(directory)
    for seq in deleted:
        home.delete(seq)
    directory.close()
    file = sorted(path.glob("streams/*/*.blk"))[0]
    return file, file.read_bytes()


def damaged(content: bytes, held: list[int], sequences: list[int]) -> tuple[set[int], bytes]:
    """Without a footer, and with records or frames hit that hold one of `held`: all they held."""
    out, hit = bytearray(content), set[int]()
    out[-1] ^= 1
    for part in block_parts(content)[1:-1]:
        has = set(part.sequences)
        if content[10]:  # `block_parts` counts a frame's sequences from the first one on
            has = {sequences[seq - sequences[0]] for seq in has}
        if has & set(held):
            out[part.start + 40] ^= 1
            hit |= has
    return hit, bytes(out)


def judge(path: Path, codec: str, wanted: set[int], given_up: set[int]) -> None:
    """All of `wanted` is served but what may be `given_up`, which is told; nothing else is."""
    directory, home = opened(path, codec)
    try:
        home.check_all()
        found = {entry[0] for entry in home.get_all()}
        lost = {seq for first, last in home.lost for seq in range(first, last + 1)}
        assert found <= wanted, f"{sorted(found - wanted)} are back"
        assert wanted - found <= lost
        assert wanted - given_up <= found, f"{sorted(wanted - given_up - found)} are hidden"
    finally:
        directory.close(clean=False)


@pytest.mark.parametrize("deleted", [{1990, 1995}, {2, 1990}, set(range(1500, 1990))])
def test_a_dense_block_stays_dense(path: Path, deleted: set[int]) -> None:
    """Most of its records are damaged, and one more: the others keep their slots."""
    sequences = list(range(1, 2001))
    held = [*range(4, 1900), 1950]
    file, content = filled(path, sequences, deleted, "none", 20)
    file.write_bytes(damaged(content, held, sequences)[1])
    judge(path, "none", {*sequences, 2001} - deleted - set(held), set())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(6))
def test_a_sparse_block_with_any_damage(path: Path, seed: int, codec: str) -> None:
    """Records between two damaged ones are given up where some are deleted."""
    rng = random.Random(seed)
    sequences = [1 + n * 5000 for n in range(40)]
    size = 20 if codec == "none" else 6000
    deleted = set(rng.sample(sequences, rng.choice((0, 1, 8, 15))))
    file, content = filled(path, sequences, deleted, codec, size)
    assert file.read_bytes()[10] == (codec != "none")
    for _ in range(12):
        held = rng.sample(sequences, rng.choice((0, 1, 2, 3)))
        hit, broken = damaged(content, held, sequences)
        shutil.copytree(path, path.parent / "trial")
        (path.parent / "trial" / file.relative_to(path)).write_bytes(broken)
        live = {*sequences, sequences[-1] + 1} - deleted
        judge(path.parent / "trial", codec, live - hit, may_go(hit, sequences, deleted))
        shutil.rmtree(path.parent / "trial")


def may_go(hit: set[int], sequences: list[int], deleted: set[int]) -> set[int]:
    """Between the first and the last damage, to the end if that is damaged."""
    if not deleted or not hit:
        return set()
    end = sequences[-1] if sequences[-1] in hit else max(hit)
    return {seq for seq in sequences if min(hit) <= seq <= end}


class HeldFiles(FaultyFiles):
    """A block's new file is put in place when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = Event()

    def rename(self, source: str, target: str) -> None:
        if target.endswith(".blk"):
            assert self.may_go_on.wait(60)
        super().rename(source, target)


def test_what_is_deleted_while_its_block_is_rewritten_stays_so(path: Path) -> None:
    """The new file is in place, and nobody knows yet: it has the message, and no bit for it."""
    files = HeldFiles()
    directory, home = opened(path, threaded=True, maps_open_max=0, files=files)
    home.append_many([message(seq, 100) for seq in range(1, 1001)])
    home.append_many([message(1001, 255 << 10)])
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.checkpoint_now(home, False)
    for seq in range(1, 700):
        home.delete(seq)
    directory.wait(directory.commit())
    directory.wait_applied()
    directory.checkpoint_now(home, False)
    file = sorted(path.glob("streams/*/*.blk"))[0]
    directory.maintain()
    ticket = directory.commit()
    home.delete(800)
    directory.wait(ticket)
    files.may_go_on.set()
    listener = select.poll()
    listener.register(directory.block_event_fd, select.POLLIN)
    while file.read_bytes()[12] == 0:
        assert listener.poll(10_000)
    for _ in range(4):
        directory.maintain()
    assert [home.get(801), home.get(800)] == [message(801, 100), None]
    directory.wait(directory.commit())
    directory.wait_applied()
    assert home.get(800) is None
    assert [entry[0] for entry in home.get_all()] == [*range(700, 800), *range(801, 1002)]
    directory.close()
    files.release()
