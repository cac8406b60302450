"""Damage in log frames that take away: what they took back is not served for what came instead.

And in blocks with deleted messages: none of those comes back, whatever else is lost.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from storage.filestore import FileStores
from storage.ports import StoreLimits
from tests.crash.damage import memory_folder, segment_parts

Message = tuple[int, int, bytes, bytes, bytes]
OPTIONS: dict[str, Any] = {"threaded": False, "segment_size": 64 << 10}
RECORDS, FORGET, ERASE, DROP, CUT, BLOCK = 1, 2, 3, 4, 5, 9


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder / "data"


def message(seq: int, word: bytes = b"first") -> Message:
    return seq, seq, b"s.%d" % (seq % 3), b"", b"%s %d " % (word, seq) * 4


def opened(path: Path) -> tuple[DataDirectory, BlockHome]:
    directory = DataDirectory(path, **OPTIONS)
    return directory, directory.homes[1] if directory.homes else directory.create_stream({})


def store(directory: DataDirectory, *messages: Message) -> None:
    directory.homes[1].append_many(list(messages))
    directory.wait(directory.commit())


def begun(path: Path) -> tuple[DataDirectory, BlockHome]:
    """Behind a checkpoint that has only the stream."""
    opened(path)[0].close()
    return opened(path)


def damage_frames(path: Path, *kinds: int) -> int:
    """Flip a bit in each frame of these kinds; how many there were."""
    hit = 0
    for segment in path.glob("log/*.seg"):
        content = bytearray(segment.read_bytes())
        for part in segment_parts(bytes(content), 0)[1:]:
            if content[part.start + 4] in kinds:
                content[part.end - 1] ^= 4
                hit += 1
        segment.write_bytes(content)
    return hit


@pytest.mark.parametrize("kinds", [(CUT,), (CUT, BLOCK)], ids=["cut", "cut and block"])
@pytest.mark.parametrize("blocks", ["blocks", "log only"])
@pytest.mark.parametrize("last", [1, 5, 9])
def test_a_lost_cut_is_seen_from_what_came_after_it(
    path: Path, kinds: tuple[int, ...], blocks: str, last: int
) -> None:
    directory, home = begun(path)
    store(directory, *(message(seq) for seq in range(1, 11)))
    directory.checkpoint_now(home, False)
    home.cut(last)
    anew = [message(seq, b"anew") for seq in range(last + 1, 13)]
    for entry in anew:
        store(directory, entry)
    directory.close(clean=False)
    if blocks == "log only":
        newest = sorted(path.glob("streams/*/*.blk"))[-1]
        newest.unlink()
    assert damage_frames(path, *kinds) >= len(kinds)
    directory, home = opened(path)
    assert home.get_all() == [*(message(seq) for seq in range(1, last + 1)), *anew]
    assert any("log frames" in sentence and "lost" in sentence for sentence in home.damage)
    directory.close()


def test_a_lost_forget_before_records_is_no_cut(path: Path) -> None:
    """The records behind it are in their block already, and the same."""
    directory, home = begun(path)
    store(directory, *(message(seq) for seq in range(1, 6)))
    home.delete(2)
    directory.wait(directory.commit())
    for seq in range(6, 12):
        store(directory, message(seq))
    directory.close(clean=False)
    assert damage_frames(path, FORGET) == 1
    directory, home = opened(path)
    assert home.get_all() == [message(seq) for seq in range(1, 12)], "the deletion is lost"
    assert home.lost == []
    directory.close()


def worked(path: Path, rng: random.Random) -> dict[int, Message]:
    """Appends, skips, deletes, erases, drops and cuts behind a checkpoint; what lives."""
    directory, home = begun(path)
    live: dict[int, Message] = {}
    last = 0
    for step in range(40):
        kind = rng.random()
        if kind < 0.55 or len(live) < 4:
            fresh = [message(last + 1 + n, b"step %d" % step) for n in range(rng.randint(1, 4))]
            live.update({entry[0]: entry for entry in fresh})
            home.append_many(fresh)
            last = fresh[-1][0]
        elif kind < 0.65:
            count = rng.choice((3, 2000))
            home.reserve(last + 1, count)
            last += count
        elif kind < 0.85:
            seq = rng.choice(list(live))
            del live[seq]
            home.delete(seq, erase=rng.random() < 0.5)
        elif kind < 0.92:
            floor = sorted(live)[1]
            home.drop(floor)
            live = {seq: entry for seq, entry in live.items() if seq >= floor}
        else:
            last = sorted(live)[-2]
            home.cut(last)
            live = {seq: entry for seq, entry in live.items() if seq <= last}
        directory.wait(directory.commit())
    directory.close(clean=False)
    return live


@pytest.mark.parametrize("seed", range(4))
def test_any_lost_frame_costs_what_it_held_and_invents_nothing(path: Path, seed: int) -> None:
    """One frame at a time. What a lost frame deleted may be back; what others did is done."""
    live = worked(path, random.Random(seed))
    for segment in path.glob("log/*.seg"):
        content = segment.read_bytes()
        for part in segment_parts(content, 0)[1:]:
            kind = content[part.start + 4]
            shutil.copytree(path, path.parent / "trial")
            damaged = bytearray(content)
            damaged[part.end - 1] ^= 1
            (path.parent / "trial" / segment.relative_to(path)).write_bytes(damaged)
            judge(path.parent / "trial", live, kind, f"kind {kind} at {part.start}")
            shutil.rmtree(path.parent / "trial")


def judge(path: Path, live: dict[int, Message], kind: int, where: str) -> None:
    directory, home = opened(path)
    try:
        found = {entry[0]: entry for entry in home.get_all() if len(entry) == 5}
        lost = {seq for first, last in home.lost for seq in range(first, last + 1)}
        wrong = {seq for seq, entry in live.items() if seq in found and found[seq] != entry}
        assert not wrong, f"{where}: {wrong} are what was taken back"
        missing = live.keys() - found.keys() - lost
        assert not missing or not home.damage, f"{where}: {missing}"
        if kind == CUT and max(live) < max(found, default=0):
            return  # nothing came after it: nobody can know
        back = found.keys() - live.keys()
        assert not back or kind in (FORGET, ERASE, DROP, CUT), f"{where}: {back} are back"
    finally:
        directory.close(clean=False)


# -- what the logic knows --------------------------------------------------------------------------


def record_at(path: Path, word: bytes) -> tuple[Path, int]:
    for file in path.glob("streams/*/*.blk"):
        at = file.read_bytes().find(word)
        if at >= 0:
            return file, at
    raise AssertionError(word)


@pytest.mark.parametrize(
    "take",
    [
        lambda home: home.delete(5),
        lambda home: home.drop(7),
        lambda home: [home.delete(seq) for seq in (4, 5, 6)],
    ],
    ids=["deleted", "dropped", "some"],
)
def test_a_damaged_message_that_was_deleted_since_is_not_counted(
    path: Path, take: Callable[[BlockHome], object]
) -> None:
    stores = FileStores(path, **OPTIONS)
    kept = stores.create({"name": "s"})
    for seq in range(1, 11):
        kept.store("s", b"", b"word %d." % seq, seq)
    stores.close()
    stores = FileStores(path, **OPTIONS)
    stores.stores[1].store("s", b"", b"word 11.", 11)
    take(stores.directory.homes[1])
    stores.wait(stores.commit())
    stores.close(clean=False)
    file, at = record_at(path, b"word 5.")
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    stores = FileStores(path, **OPTIONS)
    home = stores.directory.homes[1]
    assert stores.stores[1].messages == len(home.get_all())
    stores.close()


def test_a_cut_ends_what_is_called_lost(path: Path) -> None:
    """Other messages are stored under those sequences: they are there."""
    directory, home = opened(path)
    store(directory, *(message(seq) for seq in range(1, 11)))
    directory.close()
    file, at = record_at(path, b"first 8")
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    directory, home = opened(path)
    home.check_all()
    assert home.lost == [[8, 8]]
    home.cut(6)
    assert home.lost == []
    store(directory, *(message(seq, b"anew") for seq in range(7, 10)))
    assert [entry[0] for entry in home.get_all()] == list(range(1, 10))
    assert home.lost == []
    directory.close()


def test_an_age_limit_leaves_what_cannot_be_read_until_its_block_is_old(path: Path) -> None:
    """A file in the wrong place can be put back: what it has is not deleted as if it were old."""
    second = 10**9
    limits = StoreLimits(age_max_ns=100 * second)
    stores = FileStores(path, lambda settings: limits, **OPTIONS)
    kept = stores.create({"name": "s"})
    for seq in range(1, 11):
        kept.store("s", b"", b"x", seq * second)
    stores.close()
    (file,) = path.glob("streams/*/*.blk")
    content = file.read_bytes()
    file.unlink()
    stores = FileStores(path, lambda settings: limits, **OPTIONS)
    kept = stores.stores[1]
    assert kept.load(1) is None
    kept.expire(105 * second)
    assert (kept.messages, kept.next_expiry_ns()) == (10, 110 * second)
    stores.close()
    file.write_bytes(content)
    stores = FileStores(path, lambda settings: limits, **OPTIONS)
    kept = stores.stores[1]
    assert kept.load(10) is not None
    kept.expire(105 * second)
    assert kept.messages == 5
    stores.close()
    file.unlink()
    stores = FileStores(path, lambda settings: limits, **OPTIONS)
    kept = stores.stores[1]
    kept.expire(110 * second)
    assert kept.messages == 0
    stores.close()
