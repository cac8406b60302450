"""A block that is whole in itself, but not the one that belongs there: seen, never served.

The swaps are real: an older copy, the same block of another stream or of another history of this
one, another block, none at all. And without a swap nobody is alarmed, whatever was done before.
"""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.__main__ import DAMAGED, check_streams, describe_files
from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from storage.keys import ServerKeys
from tests.crash.damage import KEY, memory_folder, verdict
from tests.crash.workload import TINY, VARIANTS, StreamModel, one_operation

Message = tuple[int, int, bytes, bytes, bytes]
SMALL: dict[str, Any] = {
    "block_size_min": 1 << 10,
    "block_size_max": 1 << 10,
    "segment_size": 64 << 10,
    "threaded": False,
}
STATE_GONE = "state does not hold, read again from the blocks"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(path: Path, variant: str) -> DataDirectory:
    return DataDirectory(path, **SMALL, **VARIANTS[variant])


def message(seq: int, word: bytes = b"first") -> Message:
    return seq, seq, b"s.%d" % (seq % 3), b"", b"%s %d " % (word, seq) * 8


def store(
    directory: DataDirectory, home: BlockHome, *sequences: int, word: bytes = b"first"
) -> None:
    home.append_many([message(seq, word) for seq in sequences])
    settle(directory)


def settle(directory: DataDirectory) -> None:
    for _ in range(2):
        directory.wait(directory.commit())
        directory.wait_applied()
        directory.wait_rewritten()
        directory.maintain()


def block_of(path: Path, seq: int, variant: str) -> tuple[Path, range]:
    """The file that holds `seq`, and the sequences of it."""
    directory = opened(path, variant)
    home = directory.homes[1]
    block = next(b for b in home.describe_blocks() if b["first"] <= seq <= b["last"])
    directory.close()
    return Path(home.path, f"{block['number']:016x}.blk"), range(block["first"], block["last"] + 1)


def judge(path: Path, variant: str, wanted: list[Message], lost: range, word: str) -> None:
    """Exactly `wanted` is served, `lost` reported and `word` said; so do the tools."""
    seen = describe_files(path, VARIANTS[variant].get("keys"))["damage"]
    assert any(word in sentence for sentence in seen), seen
    directory = opened(path, variant)
    try:
        found = check_streams(directory)
        home = directory.homes[1]
        assert home.get_all() == wanted
        assert home.lost == [[lost[0], lost[-1]]]
        assert any(word in sentence for sentence in home.damage), home.damage
        assert verdict(found) == DAMAGED
        last = home.last_seq
        home.append_many([message(last + 1)])
        assert home.get(last + 1) == message(last + 1)
    finally:
        directory.close(clean=False)


def without(messages: list[Message], gone: range) -> list[Message]:
    return [entry for entry in messages if entry[0] not in gone]


def filled(path: Path, variant: str, last: int = 60) -> DataDirectory:
    directory = opened(path, variant)
    store(directory, directory.create_stream({"name": "one"}), *range(1, last + 1))
    return directory


def test_an_older_copy_from_before_deletes(folder: Path, variant: str) -> None:
    """The deleted messages are in it, and nobody knows which those were: none is served."""
    path = folder / "data"
    filled(path, variant).close()
    file, held = block_of(path, 20, variant)
    before = file.read_bytes()
    directory = opened(path, variant)
    for seq in held[1:]:
        directory.homes[1].delete(seq)
    settle(directory)
    directory.close()
    assert file.read_bytes() != before, "the block was rewritten"
    file.write_bytes(before)
    wanted = [entry for entry in map(message, range(1, 61)) if entry[0] not in held]
    judge(path, variant, wanted, held, "an older copy")


def test_an_older_copy_from_before_an_erase_in_a_frame(folder: Path) -> None:
    path = folder / "data"
    filled(path, "zstd").close()
    file, held = block_of(path, 20, "zstd")
    before = file.read_bytes()
    directory = opened(path, "zstd")
    directory.homes[1].delete(20, erase=True)
    settle(directory)
    directory.close()
    file.write_bytes(before)
    judge(path, "zstd", without(list(map(message, range(1, 61))), held), held, "an older copy")


def test_a_block_of_another_stream(folder: Path, variant: str) -> None:
    path = folder / "data"
    directory = filled(path, variant)
    store(directory, directory.create_stream({"name": "two"}), *range(1, 61))
    directory.close()
    file, held = block_of(path, 20, variant)
    shutil.copy(str(file).replace(f"{1:016x}/", f"{2:016x}/"), file)
    judge(path, variant, without(list(map(message, range(1, 61))), held), held, "another stream")


def test_another_block_of_the_stream(folder: Path, variant: str) -> None:
    path = folder / "data"
    filled(path, variant).close()
    file, held = block_of(path, 20, variant)
    shutil.copy(block_of(path, 40, variant)[0], file)
    judge(path, variant, without(list(map(message, range(1, 61))), held), held, "in the place of")


@pytest.mark.parametrize("seq", [38, 45, 60], ids=["both began it", "sealed", "appended to"])
def test_a_block_of_another_history(folder: Path, variant: str, seq: int) -> None:
    """Two servers went on from one copy: all records of the other hold and have good numbers."""
    filled(folder / "data", variant, last=36).close()
    shutil.copytree(folder / "data", folder / "other")
    for name, word in (("data", b"first"), ("other", b"other")):
        directory = opened(folder / name, variant)
        store(directory, directory.homes[1], *range(37, 61), word=word)
        directory.close()
    file, held = block_of(folder / "data", seq, variant)
    shutil.copy(folder / "other" / file.relative_to(folder / "data"), file)
    wanted = without(list(map(message, range(1, 61))), held)
    judge(folder / "data", variant, wanted, held, "not the block that was written here")


def test_a_missing_block(folder: Path, variant: str) -> None:
    path = folder / "data"
    filled(path, variant).close()
    file, held = block_of(path, 20, variant)
    file.unlink()
    judge(path, variant, without(list(map(message, range(1, 61))), held), held, "missing")


# -- without a state -------------------------------------------------------------------------------


def forget_states(path: Path) -> None:
    for state in path.glob("streams/*/state.*"):
        state.unlink()


def recovered(path: Path, variant: str) -> tuple[list[Message], list[Any], list[str]]:
    directory = opened(path, variant)
    try:
        directory.homes[1].check_all()
        return directory.homes[1].get_all(), directory.homes[1].lost, directory.homes[1].damage
    finally:
        directory.close(clean=False)


def test_without_a_state_the_chain_tells_a_lost_end(folder: Path) -> None:
    """Records behind the damage are not there to say that others came before them."""
    path = folder / "data"
    filled(path, "plain").close()
    file, held = block_of(path, 20, "plain")
    content = file.read_bytes()
    file.write_bytes(content[: content.index(b"first 20")])
    forget_states(path)
    served, lost, damage = recovered(path, "plain")
    assert served == without(list(map(message, range(1, 61))), range(20, held[-1] + 1))
    assert lost == [[20, held[-1]]]
    assert any("does not go on where the block before ends" in sentence for sentence in damage)


def test_without_a_state_a_block_of_another_stream_is_lost(folder: Path, variant: str) -> None:
    path = folder / "data"
    directory = filled(path, variant)
    store(directory, directory.create_stream({"name": "two"}), *range(1, 61))
    directory.close()
    file, held = block_of(path, 20, variant)
    shutil.copy(str(file).replace(f"{1:016x}/", f"{2:016x}/"), file)
    forget_states(path)
    served, lost, _ = recovered(path, variant)
    assert served == without(list(map(message, range(1, 61))), held)
    assert lost == [[held[0], held[-1]]]


def test_without_a_state_a_missing_block_is_told(folder: Path, variant: str) -> None:
    """It may as well have been deleted with all it had: so it is said, and nothing called lost."""
    path = folder / "data"
    filled(path, variant).close()
    file, held = block_of(path, 20, variant)
    file.unlink()
    forget_states(path)
    served, lost, damage = recovered(path, variant)
    assert served == without(list(map(message, range(1, 61))), held)
    assert lost == []
    told = f"are deleted or lost, from sequence {held[0]} to {held[-1]}"
    assert any(told in sentence for sentence in damage), damage


def test_without_a_state_what_was_cut_stays_cut(folder: Path, variant: str) -> None:
    """The cut block's footer still has what was taken back; the next block says where it ends."""
    path = folder / "data"
    directory = filled(path, variant, last=30)
    home = directory.homes[1]
    home.cut(17)
    settle(directory)
    store(directory, home, *range(18, 41), word=b"anew")
    directory.close()
    forget_states(path)
    served, lost, damage = recovered(path, variant)
    anew = [message(seq, b"anew") for seq in range(18, 41)]
    assert served == [*map(message, range(1, 18)), *anew]
    assert (lost, [sentence for sentence in damage if STATE_GONE not in sentence]) == ([], [])


# -- nobody is alarmed -----------------------------------------------------------------------------


def worked(
    path: Path,
    seed: int,
    variant: str,
    clean: bool,
    copies: dict[str, list[bytes]] | None = None,
) -> StreamModel:
    """Appends, deletes, erasures, drops, cuts, rewrites, starts; `copies`: earlier blocks."""
    rng, model = random.Random(seed), StreamModel()
    for run in range(3):
        directory = DataDirectory(path, threaded=False, **TINY, **VARIANTS[variant])
        home = directory.homes[1] if directory.homes else directory.create_stream({"name": "one"})
        for _ in range(60):
            one_operation(home, model, rng)
            if rng.random() < 0.4:
                directory.wait(directory.commit())
                directory.maintain()
                if copies is not None and rng.random() < 0.3:
                    keep_copies(Path(home.path), copies)
        directory.wait(directory.commit())
        directory.close(clean=clean or (run < 2 and rng.random() < 0.5))
    return model


def keep_copies(folder: Path, copies: dict[str, list[bytes]]) -> None:
    for file in folder.glob("*.blk"):
        before = copies.setdefault(file.name, [])
        if file.read_bytes() not in before:
            before.append(file.read_bytes())


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("seed", [*range(4), 116, 125])
def test_any_swap_brings_nothing_back_and_loses_only_what_it_tells(
    folder: Path, variant: str, seed: int, clean: bool
) -> None:
    """Of every block in turn: an older copy, another block, none."""
    copies: dict[str, list[bytes]] = {}
    model = worked(folder / "data", seed, variant, clean, copies)
    rng = random.Random(seed)
    blocks = sorted((folder / "data").glob("streams/*/*.blk"))
    for file in blocks:
        content, other = file.read_bytes(), rng.choice(blocks).read_bytes()
        older = [copy for copy in copies.get(file.name, []) if copy != content]
        for swapped in [*rng.sample(older, min(2, len(older))), other, b""]:
            shutil.copytree(folder / "data", folder / "trial")
            trial = folder / "trial" / file.relative_to(folder / "data")
            trial.write_bytes(swapped)
            if not swapped:
                trial.unlink()
            check_swapped(folder / "trial", model, variant, f"{file.name}, {len(swapped)} bytes")
            shutil.rmtree(folder / "trial")


def check_swapped(path: Path, model: StreamModel, variant: str, where: str) -> None:
    directory = DataDirectory(path, threaded=False, **TINY, **VARIANTS[variant])
    try:
        home = directory.homes[1]
        home.check_all()
        found = {entry[0]: entry for entry in home.get_all() if len(entry) == 5}
        assert found.items() <= model.live.items(), f"{where}: {found.keys() - model.live.keys()}"
        missing = model.live.keys() - found.keys()
        lost = {seq for first, last in home.lost for seq in range(first, last + 1)}
        assert missing <= lost, f"{where}: {missing - lost} not told, {home.damage}"
        assert not lost & found.keys(), where
    finally:
        directory.close(clean=False)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("seed", range(6))
def test_without_a_swap_there_is_no_alarm(
    folder: Path, variant: str, seed: int, clean: bool
) -> None:
    model = worked(folder / "data", seed, variant, clean)
    for _ in range(2):
        directory = DataDirectory(folder / "data", threaded=False, **TINY, **VARIANTS[variant])
        home = directory.homes[1]
        home.check_all()
        assert [entry for entry in home.get_all() if len(entry) == 5] == list(model.live.values())
        assert (directory.damage, home.damage, home.lost) == ([], [], [])
        directory.close()
        assert describe_files(folder / "data", ServerKeys(KEY))["damage"] == []


def test_a_block_half_dropped_and_half_deleted_is_not_called_lost(folder: Path) -> None:
    """Its file is gone, and the checkpoint does not know how many of its messages were dropped."""
    path = folder / "data"
    filled(path, "plain").close()
    file, held = block_of(path, 20, "plain")
    directory = opened(path, "plain")
    home = directory.homes[1]
    home.drop(held[2])
    for seq in held[2:-1]:
        home.delete(seq)
    settle(directory)
    assert next(block for block in home.describe_blocks())["generation"] == 1
    home.delete(held[-1])
    settle(directory)
    assert not file.exists()
    directory.close(clean=False)
    directory = opened(path, "plain")
    home = directory.homes[1]
    home.check_all()
    assert home.get_all() == list(map(message, range(held[-1] + 1, 61)))
    assert (home.lost, home.damage) == ([], [])
    directory.close()


@pytest.mark.parametrize("seed", [*range(12), 244, 278])
def test_without_a_state_nothing_is_called_lost(folder: Path, variant: str, seed: int) -> None:
    """What was deleted may be back then; what was taken back is not, and the rest is as it was."""
    model = worked(folder / "data", seed, variant, clean=True)
    forget_states(folder / "data")
    directory = DataDirectory(folder / "data", threaded=False, **TINY, **VARIANTS[variant])
    home = directory.homes[1]
    home.check_all()
    found = {entry[0]: entry for entry in home.get_all() if len(entry) == 5}
    assert {seq: found.get(seq) for seq in model.live} == model.live
    assert all(entry in model.tried[seq] for seq, entry in found.items())
    assert home.lost == []
    words = (STATE_GONE, "are deleted or lost")
    assert [s for s in home.damage if not any(word in s for word in words)] == []
    directory.close(clean=False)
