"""The power goes while a start recovers from a kill, whose writes were in memory only."""

import random
from pathlib import Path
from unittest.mock import patch

import pytest

import storage.keys
from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles
from tests.crash.test_power_loss import check, quick_key
from tests.crash.workload import TINY, VARIANTS, StreamModel, run

OPERATIONS = 60
KILLED_AT = (9, 23, 41, 68)


@pytest.fixture(autouse=True)
def _keys_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.keys, "master_key", quick_key)


def recovers(path: Path, files: FaultyFiles, durable: bool, variant: str) -> bool:
    """False: the machine stopped before the end of it."""
    try:
        options = TINY | VARIANTS[variant]
        directory = DataDirectory(path, files, threaded=False, durable=durable, **options)
    except OSError:
        return False
    directory.close(clean=False)
    return not files.stopped


def lose_power(
    path: Path, seed: int, killed_at: int, stop_after: int, durable: bool, variant: str
) -> bool:
    """Kill at one sync, stop the start at another; whether the start came to its end before."""
    files, models = FaultyFiles(stop_at=killed_at), dict[int, StreamModel]()
    with patch("os.urandom", random.Random(f"{seed} {killed_at}").randbytes):
        run(path, files, seed, OPERATIONS, models, durable, variant)
        files.stopped = False
        files.stop_at = files.syncs + stop_after
        whole = recovers(path, files, durable, variant)
        files.crash(random.Random(f"{seed} {killed_at} {stop_after}"))
    where = f"seed {seed}, {variant}, killed at sync {killed_at}, the start stopped at {stop_after}"
    check(path, models, where, durable, variant)
    return whole


@pytest.mark.feature("9.024")
@pytest.mark.parametrize("durable", [True, False], ids=["always", "lazy"])
@pytest.mark.parametrize("variant", ["plain", "zstd and chacha"])
@pytest.mark.parametrize("seed", range(3))
def test_power_loss_while_a_start_recovers(
    tmp_path: Path, seed: int, variant: str, durable: bool
) -> None:
    for killed_at in KILLED_AT:
        stop_after, whole = 1, False
        while not whole:
            path = tmp_path / f"{killed_at} {stop_after}" / "data"
            whole = lose_power(path, seed, killed_at, stop_after, durable, variant)
            stop_after += 1
        assert stop_after > 3
