"""Streams made, changed and deleted, and the power lost at every sync: what was answered stays."""

import random
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles
from tests.crash.workload import TINY

STEPS = 40
Answered = dict[int, tuple[int, int]]
"""Of each group, the version of its settings and the number of its messages."""


class Ledger:
    """What was answered, and what was asked for since."""

    def __init__(self) -> None:
        self.now: Answered = {}
        self.answered: Answered = {}
        self.deleting: set[int] = set()
        self.deleted: set[int] = set()

    def answer(self) -> None:
        self.answered = dict(self.now)
        self.deleted |= self.deleting

    def complaint(self, group: int, found: tuple[int, int] | None) -> str | None:
        if group in self.deleted:
            return None if found is None else "deleted, and back"
        if found is None:
            kept = group in self.answered and group not in self.deleting
            return "gone" if kept else None
        if group not in self.answered:
            return None
        version, count = self.answered[group]
        holds = found[0] >= version and found[1] >= count
        return None if holds else f"{found} for {version, count}"


def step(directory: DataDirectory, ledger: Ledger, rng: random.Random) -> None:
    groups = list(directory.homes)
    kind = rng.random()
    if kind < 0.35 or not groups:
        home = directory.create_stream({"version": 0}, settle=False)
        ledger.now[home.group] = (0, 0)
        return
    group = rng.choice(groups)
    home, (version, count) = directory.homes[group], ledger.now[group]
    if kind < 0.5:
        directory.delete_stream(home, settle=False)
        ledger.deleting.add(group)
        del ledger.now[group]
    elif kind < 0.6:
        ledger.now[group] = (version + 1, count)
        directory.update_settings(home, {"version": version + 1})
        ledger.answer()
    else:
        home.append_many([(count + 1, 1, b"s", b"", rng.randbytes(300))])
        ledger.now[group] = (version, count + 1)


def work(path: Path, files: FaultyFiles, seed: int, durable: bool, ledger: Ledger) -> None:
    rng = random.Random(seed)
    try:
        directory = DataDirectory(path, files, threaded=False, durable=durable, **TINY)
    except OSError:
        return
    try:
        for _ in range(STEPS):
            step(directory, ledger, rng)
            if rng.random() < 0.3:
                directory.settle()
                if durable:
                    directory.wait(directory.commit())
                    ledger.answer()
        directory.close()
        if not directory.failure:
            ledger.answer()
    except OSError:
        pass
    finally:
        directory.close(clean=False)


def check(path: Path, ledger: Ledger, where: str, durable: bool) -> None:
    for attempt in (1, 2):
        directory = DataDirectory(path, threaded=False, **TINY)
        try:
            assert directory.damage == [], where
            known = ledger.answered.keys() | ledger.deleted | directory.homes.keys()
            for group in known:
                home = directory.homes.get(group)
                found = None if home is None else state_of(directory, home)
                complaint = ledger.complaint(group, found)
                assert complaint is None, f"{where}, open {attempt}, stream {group}: {complaint}"
                assert home is None or not durable or home.damage == [], where
        finally:
            directory.close(clean=attempt == 1)
    left = {path.name for path in (path / "streams").iterdir()}
    assert left == {f"{group:016x}" for group in directory.homes}, where


def state_of(directory: DataDirectory, home: BlockHome) -> tuple[int, int]:
    return directory.settings_of(home)["version"], len(home.get_all())


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_power_loss_at_every_sync(tmp_path: Path, seed: int, durable: bool) -> None:
    probe = FaultyFiles()
    ledger = Ledger()
    with patch("os.urandom", random.Random(seed).randbytes):
        work(tmp_path / "whole", probe, seed, durable, ledger)
        probe.release()
        check(tmp_path / "whole", ledger, f"seed {seed}, no crash", durable)
    for stop_at in range(1, probe.syncs + 1):
        path, files, ledger = tmp_path / "run" / "data", FaultyFiles(stop_at=stop_at), Ledger()
        with patch("os.urandom", random.Random(f"{seed} {stop_at}").randbytes):
            work(path, files, seed, durable, ledger)
            files.crash(random.Random(seed * 1000 + stop_at))
            check(path, ledger, f"seed {seed}, sync {stop_at}", durable)
        shutil.rmtree(path.parent)
