"""Damage in log frames that take away: what they took back is not served for what came instead.

And in blocks with deleted messages: none of those comes back, whatever else is lost.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from storage.filestore import FileStores
from storage.ports import StoreLimits
from tests.crash.damage import (
    SHORT_LOG,
    Part,
    memory_folder,
    number,
    segment_parts,
    two_streams,
)

Message = tuple[int, int, bytes, bytes, bytes]
RECORDS, FORGET, ERASE, DROP, CUT, BLOCK = 1, 2, 3, 4, 5, 9


@pytest.fixture
def path() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder / "data"


def message(seq: int, word: bytes = b"first") -> Message:
    return seq, seq, b"s.%d" % (seq % 3), b"", b"%s %d " % (word, seq) * 4


def opened(path: Path) -> tuple[DataDirectory, BlockHome]:
    directory = DataDirectory(path, **SHORT_LOG)
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


# -- wholes ----------------------------------------------------------------------------------------


def store_each(stores: FileStores, count: int, body: bytes = b"before") -> None:
    for _ in range(count):
        stores.stores[1].store("s", b"", body, 1)
        stores.wait(stores.commit())


def store_whole(stores: FileStores, count: int) -> None:
    """Each message in a frame of its own, because the other stream writes as well."""
    stores.stores[1].begin_whole()
    for _ in range(count):
        stores.stores[1].store("s", b"", b"whole", 1)
        stores.stores[2].store("s", b"", b"other", 1)
    stores.stores[1].end_whole()
    stores.wait(stores.commit())


def kill(stores: FileStores) -> None:
    """What nobody had synced is gone: the blocks."""
    path = Path(stores.directory.path)
    stores.close(clean=False)
    for block in path.glob("streams/*/*.blk"):
        block.unlink()


def parts_of_first(content: bytes) -> list[Part]:
    """The frames of stream 1."""
    return [
        part for part in segment_parts(content, 0)[1:] if number(content, part.start + 8, 8) == 1
    ]


def damage_first(path: Path, seq: int) -> None:
    """A bit of the frame that has this message of stream 1."""
    (segment,) = path.glob("log/*.seg")
    content = bytearray(segment.read_bytes())
    (part,) = (part for part in parts_of_first(bytes(content)) if seq in part.sequences)
    content[part.end - 1] ^= 4
    segment.write_bytes(content)


def cut_end(path: Path) -> None:
    """The newest segment without the last frame of stream 1, and what is behind it."""
    segment = max(path.glob("log/*.seg"))
    content = segment.read_bytes()
    at = parts_of_first(content)[-1].start
    segment.write_bytes(content[:at] + bytes(len(content) - at))


@pytest.mark.feature("3.044")
def test_a_whole_behind_a_lost_frame_is_one_still(path: Path) -> None:
    """Its end is not there: none of it is, and one gap is told of."""
    stores = two_streams(path)
    store_each(stores, 4)
    store_whole(stores, 6)
    kill(stores)
    damage_first(path, 4)
    cut_end(path)
    stores = FileStores(path, **SHORT_LOG)
    home = stores.directory.homes[1]
    assert [entry[4] for entry in home.get_all()] == [b"before"] * 3
    assert sum("log frames" in sentence for sentence in home.damage) == 1
    stores.close()


@pytest.mark.feature("3.044")
def test_a_damaged_header_of_before_says_nothing_about_a_torn_whole(path: Path) -> None:
    stores = two_streams(path)
    store_each(stores, 40, b"before" * 500)
    store_whole(stores, 6)
    kill(stores)
    first, *others = sorted(path.glob("log/*.seg"))
    assert others
    content = bytearray(first.read_bytes())
    content[40] ^= 1
    first.write_bytes(content)
    cut_end(path)
    stores = FileStores(path, **SHORT_LOG)
    assert any("segment header" in sentence for sentence in stores.directory.damage)
    assert len(stores.directory.homes[1].get_all()) == 40
    stores.close()


def test_the_end_of_a_whole_does_not_end_a_gap(path: Path) -> None:
    """It has no records, so what was lost is still to be seen from those behind it."""
    stores = two_streams(path)
    store_each(stores, 1)
    store_whole(stores, 1)
    store_each(stores, 1)
    kill(stores)
    damage_first(path, 2)
    stores = FileStores(path, **SHORT_LOG)
    home = stores.directory.homes[1]
    assert [entry[0] for entry in home.get_all()] == [1, 3]
    assert home.lost == [[2, 2]]
    stores.close()


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
    stores = FileStores(path, **SHORT_LOG)
    kept = stores.create({"name": "s"})
    for seq in range(1, 11):
        kept.store("s", b"", b"word %d." % seq, seq)
    stores.close()
    stores = FileStores(path, **SHORT_LOG)
    stores.stores[1].store("s", b"", b"word 11.", 11)
    take(stores.directory.homes[1])
    stores.wait(stores.commit())
    stores.close(clean=False)
    file, at = record_at(path, b"word 5.")
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    stores = FileStores(path, **SHORT_LOG)
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
    stores = FileStores(path, lambda settings: limits, **SHORT_LOG)
    kept = stores.create({"name": "s"})
    for seq in range(1, 11):
        kept.store("s", b"", b"x", seq * second)
    stores.close()
    (file,) = path.glob("streams/*/*.blk")
    content = file.read_bytes()
    file.unlink()
    stores = FileStores(path, lambda settings: limits, **SHORT_LOG)
    kept = stores.stores[1]
    assert kept.load(1) is None
    kept.expire(105 * second)
    assert (kept.messages, kept.next_expiry_ns()) == (10, 110 * second)
    stores.close()
    file.write_bytes(content)
    stores = FileStores(path, lambda settings: limits, **SHORT_LOG)
    kept = stores.stores[1]
    assert kept.load(10) is not None
    kept.expire(105 * second)
    assert kept.messages == 5
    stores.close()
    file.unlink()
    stores = FileStores(path, lambda settings: limits, **SHORT_LOG)
    kept = stores.stores[1]
    kept.expire(110 * second)
    assert kept.messages == 0
    stores.close()
