"""Every flipped bit and every truncation of every file: seen, never served, nothing else lost.

CI tries all bits of a plain sealed block and some of the other files, others every day.
`make damage DAYS=30` tries a thirtieth of all bits of all variants' files, the next one every day:
run daily it has tried all after thirty days. `make damage DAYS=1` and `make crash` try all at once
(with SEEDS=200, twelve minutes on two cores).
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.__main__ import DAMAGED, SOUND
from storage._cipher import aes_available
from storage._directory import DataDirectory
from storage.fs import NotUsable
from tests.crash.damage import (
    KINDS,
    STREAM,
    Kind,
    Outcome,
    Part,
    Specimen,
    block_parts,
    durable_position,
    fill_clean,
    fill_killed,
    fill_log_behind_a_checkpoint,
    fill_log_only,
    flips,
    memory_folder,
    segment_parts,
)

DAYS = os.environ.get("MARTLET_DAMAGE_STEP", "")
STEP = int(DAYS or "61")
DAY = int(os.environ.get("MARTLET_DAMAGE_DAY", datetime.now(UTC).toordinal()))
FIRST = DAY % STEP
META_STEP = min(STEP, 7)
AFTERLIFE_EVERY = 97
TRIALS_MAX = 200
LOG_MARK = 6
PLAIN_FILES = [name for name, kind in KINDS.items() if kind.codec == "none"]


def skip_without_aes(kind: Kind) -> Kind:
    if kind.cipher == "aes" and not aes_available():
        pytest.skip("no AES instructions here")
    return kind


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path


def judge(
    specimen: Specimen,
    outcome: Outcome,
    missing: set[int],
    seen: bool,
    where: str,
    told: bool = True,
) -> None:
    """Exactly `missing` is missing, and reported when it can be `told`; damage is `seen`."""
    wanted = [message for seq, message in specimen.wanted.items() if seq not in missing]
    assert outcome.served == wanted, f"{where}: served {[entry[0] for entry in outcome.served]}"
    reported = missing if told else set()
    assert (outcome.lost, outcome.state_lost) == (reported, reported), f"{where}: {outcome}"
    assert outcome.verdict == (DAMAGED if seen else SOUND), f"{where}: {outcome.damage}"


def held_behind(parts: list[Part], size: int) -> set[int]:
    """The messages of which a file that ends at `size` does not have all bytes."""
    return {seq for part in parts if part.end > size for seq in part.sequences}


def held_at(parts: list[Part], at: int) -> tuple[set[int], bool]:
    """The messages that a flip at `at` costs, and whether that byte means anything."""
    for part in parts:
        if part.start <= at < part.end:
            return set(part.sequences), True
    return set(), False


def without_late_mark(content: bytes, parts: list[Part]) -> list[Part]:
    """A segment's mark only says that it is the last frame: damaged, it is missed by nobody."""
    return [part for part in parts if part.provable or content[part.start + 4] != LOG_MARK]


def try_block(specimen: Specimen, name: str, step: int, first: int) -> None:
    content = specimen.files[name]
    parts = block_parts(content)
    sealed = content[-128:-120] == b"MARTFTR1"
    for bit, damaged in flips(content, first, step):
        missing, seen = held_at(parts, bit >> 3)
        outcome = specimen.damaged(name, damaged)
        judge(specimen, outcome, missing, seen, f"{name} bit {bit}")
        if bit % AFTERLIFE_EVERY == 0:
            specimen.live_on(missing)
    for size in range(first // 8, len(content), max(step // 8, 1)):
        missing = held_behind(parts, size)
        outcome = specimen.damaged(name, content[:size])
        judge(specimen, outcome, missing, sealed or bool(missing), f"{name} cut to {size}")


@pytest.mark.feature("9.027")
def test_every_bit_of_a_sealed_block(folder: Path) -> None:
    try_block(Specimen(KINDS["plain"], folder, fill_clean), f"{STREAM}/{1:016x}.blk", 1, 0)


@pytest.mark.parametrize("name", KINDS)
def test_bits_of_a_sealed_block(folder: Path, name: str) -> None:
    specimen = Specimen(skip_without_aes(KINDS[name]), folder, fill_clean)
    block = f"{STREAM}/{1:016x}.blk"
    step = STEP if DAYS else max(STEP, len(specimen.files[block]) * 8 // TRIALS_MAX)
    assert (specimen.files[block][10] == 1) == (KINDS[name].codec != "none")
    try_block(specimen, block, step, DAY % step)


@pytest.mark.parametrize("name", PLAIN_FILES)
def test_bits_of_the_block_that_is_appended_to(folder: Path, name: str) -> None:
    specimen = Specimen(skip_without_aes(KINDS[name]), folder, fill_clean)
    last = max(file for file in specimen.files if file.endswith(".blk"))
    assert specimen.files[last][-128:-120] != b"MARTFTR1"
    try_block(specimen, last, STEP, FIRST)


@pytest.mark.parametrize("file", ["state.a", "state.b"])
@pytest.mark.parametrize("name", KINDS)
def test_bits_of_a_state(folder: Path, name: str, file: str) -> None:
    specimen = Specimen(skip_without_aes(KINDS[name]), folder, fill_clean)
    content = specimen.files[f"{STREAM}/{file}"]
    for bit, damaged in flips(content, FIRST, STEP):
        outcome = specimen.damaged(f"{STREAM}/{file}", damaged)
        judge(specimen, outcome, set(), True, f"{file} bit {bit}")
    for size in range(FIRST // 8, len(content), max(STEP // 8, 1)):
        outcome = specimen.damaged(f"{STREAM}/{file}", content[:size])
        judge(specimen, outcome, set(), True, f"{file} cut to {size}")


@pytest.mark.parametrize("name", PLAIN_FILES)
def test_bits_of_a_log_whose_records_are_in_blocks(folder: Path, name: str) -> None:
    """After a kill: nothing is lost, whatever the log has lost."""
    specimen = Specimen(skip_without_aes(KINDS[name]), folder, fill_killed)
    segments = sorted(file for file in specimen.files if file.endswith(".seg"))
    durable = durable_position([specimen.files[segment] for segment in segments])
    assert len(segments) > 1
    for segment in segments:
        content = specimen.files[segment]
        parts = without_late_mark(content, segment_parts(content, durable))
        used = min(parts[-1].end + 64, len(content))
        for bit, damaged in flips(content[:used], FIRST, STEP):
            outcome = specimen.damaged(segment, damaged + content[used:])
            seen = held_at(parts, bit >> 3)[1]
            judge(specimen, outcome, set(), seen, f"{segment} bit {bit}")
        for size in range(FIRST // 8, used, max(STEP // 8, 1)):
            outcome = specimen.damaged(segment, content[:size])
            judge(specimen, outcome, set(), True, f"{segment} cut to {size}")


@pytest.mark.parametrize("name", PLAIN_FILES)
def test_bits_of_a_log_that_alone_has_the_records(folder: Path, name: str) -> None:
    """After a power cut: lost is what the damaged frame held, and it is named.

    Only the newest frames, of which nothing later says that they were durable, look like a write
    that was cut off: those and what is behind them are left out without a word.
    """
    specimen = Specimen(skip_without_aes(KINDS[name]), folder, fill_log_only)
    segments = sorted(file for file in specimen.files if file.endswith(".seg"))
    durable = durable_position([specimen.files[segment] for segment in segments])
    behind: set[int] = set()
    for segment in reversed(segments):
        content = specimen.files[segment]
        parts = without_late_mark(content, segment_parts(content, durable))
        used = parts[-1].end
        for bit, damaged in flips(content[:used], FIRST, STEP):
            missing, seen = held_at(parts, bit >> 3)
            torn = any(p.start <= bit >> 3 < p.end and not p.provable for p in parts)
            if torn:
                missing = behind | held_behind(parts, bit >> 3)
            outcome = specimen.damaged(segment, damaged + content[used:])
            judge(specimen, outcome, missing, seen and not torn, f"{segment} bit {bit}", not torn)
        behind |= held_behind(parts, 0)


@pytest.mark.feature("9.028")
def test_damaged_meta_leaves_the_stream_unloaded_and_untouched(folder: Path) -> None:
    """Not even what the log has of it is removed: with the meta back, all of it is there."""
    specimen = Specimen(KINDS["plain"], folder, fill_log_behind_a_checkpoint)
    content = specimen.files[f"{STREAM}/meta"]
    for bit, damaged in flips(content, DAY % META_STEP, META_STEP):
        outcome = specimen.damaged(f"{STREAM}/meta", damaged)
        assert (outcome.served, outcome.verdict) == ([], DAMAGED)
        assert any("meta does not hold" in sentence for sentence in outcome.damage), bit
        (specimen.path / STREAM / "meta").write_bytes(content)
        judge(specimen, specimen.outcome(), set(), False, f"meta bit {bit}, put back")


def test_damaged_meta_comes_back_from_the_log(folder: Path) -> None:
    specimen = Specimen(KINDS["plain"], folder, fill_log_only)
    content = specimen.files[f"{STREAM}/meta"]
    for bit, damaged in flips(content, DAY % META_STEP, META_STEP):
        outcome = specimen.damaged(f"{STREAM}/meta", damaged)
        assert len(outcome.served) > 0, bit
        assert outcome.lost == set(), bit
        assert (specimen.path / STREAM / "meta").read_bytes() == content


def test_both_states_damaged_loses_no_message(folder: Path) -> None:
    specimen = Specimen(KINDS["plain"], folder, fill_clean)
    specimen.put_back()
    specimen.write(f"{STREAM}/state.b", b"no")
    outcome = specimen.damaged(f"{STREAM}/state.a", b"no")
    judge(specimen, outcome, set(), True, "both states")
    assert any("state does not hold" in sentence for sentence in outcome.damage)


def test_damaged_identity_is_refused(folder: Path) -> None:
    specimen = Specimen(KINDS["plain"], folder, fill_clean)
    for _, damaged in flips(specimen.files["directory"]):
        specimen.put_back()
        specimen.write("directory", damaged)
        with pytest.raises(NotUsable, match="does not hold"):
            DataDirectory(specimen.path)
