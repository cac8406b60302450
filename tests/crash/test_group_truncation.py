"""Several groups share the log; each takes its own end back, and nothing of that comes again.

A replicated log does just this: its follower truncates what conflicts with the leader's and appends
other entries under the same numbers. Entries are records here, their index is the sequence.
"""

import random
from pathlib import Path
from unittest.mock import patch

import pytest

import storage.keys
from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles
from tests.crash.test_power_loss import quick_key
from tests.crash.workload import TINY, VARIANTS, synced_ticket

Entry = tuple[int, int, bytes, bytes, bytes]
GROUPS = 3
OPERATIONS = 70


@pytest.fixture(autouse=True)
def _keys_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.keys, "master_key", quick_key)


def opened(path: Path, files: FaultyFiles | None, durable: bool, variant: str) -> DataDirectory:
    return DataDirectory(path, files, threaded=False, durable=durable, **TINY, **VARIANTS[variant])


class Follower:
    """One group's entries as they should be, after each thing that was done to them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.floor = 1
        self.term = 1
        self.steps: list[list[Entry]] = [[]]
        self.submitted: list[tuple[int, int]] = []
        self.acked = 0

    @property
    def last(self) -> int:
        return self.entries[-1][0] if self.entries else self.floor - 1

    def work(self, home: BlockHome, rng: random.Random) -> None:
        kind = rng.random()
        if kind < 0.6:
            self.append(home, rng)
        elif kind < 0.92:
            self.truncate(home, max(self.last - rng.choice((0, 1, 2, 5, 40)), self.floor - 1))
        elif self.entries:
            self.compact(home, rng.randint(self.floor, self.last))
        self.steps.append(list(self.entries))

    def append(self, home: BlockHome, rng: random.Random) -> None:
        """Entries of the current term, so that no two with one index are ever the same."""
        fresh = [
            (
                seq,
                self.term,
                b"",
                b"",
                b"%d %d " % (self.term, seq) + rng.randbytes(rng.choice((0, 40, 300))),
            )
            for seq in range(self.last + 1, self.last + 1 + rng.randint(1, 6))
        ]
        home.append_many(fresh)
        self.entries += fresh

    def truncate(self, home: BlockHome, last: int) -> None:
        self.term += 1
        home.cut(last)
        self.entries = [entry for entry in self.entries if entry[0] <= last]

    def compact(self, home: BlockHome, floor: int) -> None:
        self.floor = floor
        home.drop(floor)
        self.entries = [entry for entry in self.entries if entry[0] >= floor]

    def durable(self, ticket: int) -> None:
        while self.submitted and self.submitted[0][0] <= ticket:
            self.acked = self.submitted.pop(0)[1]

    def may_be(self, found: list[Entry]) -> bool:
        """Whether `found` is what was there after, or within, a step since the last acked one.

        What a floor took away may be there or not; within an append some of its entries are there.
        """
        above = [entry for entry in found if entry[0] >= self.floor]
        for number in range(self.acked, len(self.steps)):
            after = [entry for entry in self.steps[number] if entry[0] >= self.floor]
            before = self.steps[max(number - 1, self.acked)]
            before = [entry for entry in before if entry[0] >= self.floor]
            if above == after or (before == above[: len(before)] and above == after[: len(above)]):
                return True
        return False


def run(path: Path, files: FaultyFiles, seed: int, durable: bool, variant: str) -> list[Follower]:
    rng, followers = random.Random(seed), [Follower() for _ in range(GROUPS)]
    directory = None
    try:
        directory = opened(path, files, durable, variant)
        homes = [directory.create_stream({"name": str(number)}) for number in range(GROUPS)]
        for _ in range(OPERATIONS):
            number = rng.randrange(GROUPS)
            followers[number].work(homes[number], rng)
            if rng.random() < 0.4:
                ticket = directory.commit()
                for follower in followers:
                    follower.submitted.append((ticket, len(follower.steps) - 1))
            if rng.random() < 0.5:
                ticket = directory.poll()
                ticket = ticket if durable else synced_ticket(directory, rng)
                for follower in followers:
                    follower.durable(ticket)
                directory.maintain()
                if directory.failure:
                    break
    except OSError:
        pass
    finally:
        if directory is not None:
            directory.close(clean=False)
    return followers


def check(path: Path, followers: list[Follower], where: str, durable: bool, variant: str) -> None:
    """Each group by itself is as after some step; and it goes on from there, twice."""
    for attempt in (1, 2):
        directory = opened(path, None, durable, variant)
        try:
            assert directory.damage == [], where
            for group, follower in enumerate(followers, 1):
                home = directory.homes.get(group)
                if home is None:
                    assert follower.acked == 0, where
                    continue
                found = home.get_all()
                told = f"{where}, group {group}, open {attempt}: {[entry[:2] for entry in found]}"
                assert follower.may_be(found), told
                assert [entry[0] for entry in found] == list(
                    range(home.floor, home.last_seq + 1)
                ), told
                follower.entries, follower.floor = found, home.floor
                follower.term += 1000
                follower.truncate(home, max(follower.last - 3, follower.floor - 1))
                follower.append(home, random.Random(attempt))
                follower.steps, follower.acked = [follower.entries], 0
            directory.wait(directory.commit())
        finally:
            directory.close(clean=attempt == 2)


@pytest.mark.parametrize("durable", [True, False], ids=["always", "lazy"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", range(2))
def test_power_loss_while_groups_truncate(
    tmp_path: Path, seed: int, variant: str, durable: bool
) -> None:
    probe = FaultyFiles()
    with patch("os.urandom", random.Random(seed).randbytes):
        followers = run(tmp_path / "whole", probe, seed, durable, variant)
        probe.release()
        check(tmp_path / "whole", followers, f"seed {seed}, no crash", durable, variant)
    step = 2 if variant == "plain" else 5
    for stop_at in range(1 + seed % step, probe.syncs + 1, step):
        lose_power(tmp_path / f"stop {stop_at}", seed, stop_at, durable, variant)


def lose_power(path: Path, seed: int, stop_at: int, durable: bool, variant: str) -> None:
    where = f"seed {seed}, {'always' if durable else 'lazy'} {variant}, sync {stop_at}"
    files = FaultyFiles(stop_at=stop_at)
    with patch("os.urandom", random.Random(f"{seed} {stop_at}").randbytes):
        followers = run(path, files, seed, durable, variant)
        files.crash(random.Random(seed * 1000 + stop_at))
        check(path, followers, where, durable, variant)


def entries(first: int, last: int, term: int) -> list[Entry]:
    return [(seq, term, b"", b"", b"%d %d" % (term, seq) * 20) for seq in range(first, last + 1)]


def reopened(directory: DataDirectory, path: Path, clean: bool) -> tuple[DataDirectory, BlockHome]:
    directory.wait(directory.commit())
    directory.close(clean=clean)
    directory = opened(path, None, True, "plain")
    return directory, directory.homes[1]


def test_within_one_batch_of_another_group(tmp_path: Path) -> None:
    """The entries taken back were never written; the other group's, between them, all are."""
    directory = opened(tmp_path, None, True, "plain")
    home, other = (directory.create_stream({"name": name}) for name in ("one", "two"))
    home.append_many(entries(1, 5, term=1))
    other.append_many(entries(1, 3, term=7))
    home.append_many(entries(6, 9, term=1))
    home.cut(4)
    other.append_many(entries(4, 6, term=7))
    home.append_many(entries(5, 6, term=2))
    home.cut(5)
    home.append_many(entries(6, 6, term=3))
    wanted = [*entries(1, 4, 1), *entries(5, 5, 2), *entries(6, 6, 3)]
    assert home.get_all() == wanted
    directory, home = reopened(directory, tmp_path, clean=False)
    assert (home.get_all(), home.last_seq, home.lost) == (wanted, 6, [])
    assert directory.homes[2].get_all() == entries(1, 6, term=7)
    directory.close()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("last", [0, 1, 30, 150, 399], ids=lambda last: f"to {last}")
def test_entries_in_blocks_and_checkpoints_are_taken_back(
    tmp_path: Path, last: int, clean: bool
) -> None:
    """As far as the beginning: sealed blocks go, one is cut, and the numbers are given again."""
    directory = opened(tmp_path, None, True, "plain")
    home, other = (directory.create_stream({"name": name}) for name in ("one", "two"))
    home.append_many(entries(1, 400, term=1))
    other.append_many(entries(1, 400, term=7))
    directory.wait(directory.commit())
    directory.close(clean=clean)
    directory = opened(tmp_path, None, True, "plain")
    home, other = directory.homes[1], directory.homes[2]
    home.cut(last)
    assert (home.last_seq, home.get_all()) == (last, entries(1, last, term=1))
    directory, home = reopened(directory, tmp_path, clean)
    assert (home.last_seq, home.get_all()) == (last, entries(1, last, term=1))
    home.append_many(entries(last + 1, last + 20, term=2))
    directory, home = reopened(directory, tmp_path, clean)
    home.check_all()
    assert home.get_all() == [*entries(1, last, 1), *entries(last + 1, last + 20, 2)]
    assert (home.lost, home.damage) == ([], [])
    assert directory.homes[2].get_all() == entries(1, 400, term=7)
    directory.close()


def test_a_group_that_always_truncates_does_not_hold_the_log(tmp_path: Path) -> None:
    """What was taken back needs no segment: the bound holds, and the other group's rest is kept."""
    directory = opened(tmp_path, None, True, "plain")
    home, other = (directory.create_stream({"name": name}) for name in ("one", "two"))
    other.append_many(entries(1, 3, term=7))
    for term in range(1, 200):
        home.append_many(entries(1, 20, term))
        directory.wait(directory.commit())
        home.cut(0 if term % 2 else 1)
        if term % 2 == 0:
            home.cut(0)
        directory.maintain()
        directory.wait(directory.commit())
        assert directory.stats["log_bytes"] <= 2 * TINY["log_bytes_max"], term
    directory, home = reopened(directory, tmp_path, clean=False)
    assert (home.get_all(), home.last_seq) == ([], 0)
    assert directory.homes[2].get_all() == entries(1, 3, term=7)
    assert len(list(Path(home.path).glob("*.blk"))) <= 1
    directory.close()
