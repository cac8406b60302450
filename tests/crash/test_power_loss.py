"""Stop at every n-th sync, lose what was not synced, open again, compare with what was acked."""

import hashlib
import os
import random
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

import storage.keys
from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles
from tests.crash.workload import TINY, VARIANTS, StreamModel, run

SEEDS = int(os.environ.get("MARTLET_CRASH_SEEDS", "2"))
OPERATIONS = 60


def check_erased(path: Path, models: dict[int, StreamModel], where: str) -> None:
    """Not a byte of what was erased is in any file."""
    wiped = [content for model in models.values() for content in model.wiped]
    if not wiped:
        return
    for file in path.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not any(secret in content for secret in wiped), f"{where}: erased, and in {file}"


def check(
    path: Path,
    models: dict[int, StreamModel],
    where: str,
    durable: bool = True,
    variant: str = "plain",
) -> None:
    """Open twice: the second time sees what the first recovery wrote.

    A lazy directory may report as lost what was written and never synced.
    """
    for attempt in (1, 2):
        directory = DataDirectory(path, threaded=False, **TINY, **VARIANTS[variant])
        try:
            assert directory.damage == [], where
            for group, model in models.items():
                home = directory.homes.get(group)
                if home is None:
                    assert not model.acked, where
                    continue
                found = [entry for entry in home.get_all() if len(entry) == 5]
                complaint = model.complaint(found)
                assert complaint is None, f"{where}, open {attempt}: {complaint}"
                assert home.lost == [] or not durable, f"{where}: {home.damage}"
        finally:
            directory.close(clean=attempt == 1)
        check_erased(path, models, f"{where}, open {attempt}")


def quick_key(text: str, identity: bytes) -> bytes:
    """Each directory has a key of its own, and scrypt is slow on purpose."""
    return hashlib.sha512(text.encode() + identity).digest()


@pytest.fixture(autouse=True)
def _keys_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.keys, "master_key", quick_key)


WAYS = [
    (True, "plain"),
    (False, "plain"),
    *((True, variant) for variant in VARIANTS if variant != "plain"),
]


@pytest.mark.feature("9.024")
@pytest.mark.parametrize(("durable", "variant"), WAYS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_loss_at_every_sync(tmp_path: Path, seed: int, durable: bool, variant: str) -> None:
    lose_power_at_every_sync(tmp_path, seed, durable, variant)


# Seeds that once brought a deleted or erased message back, or reported as lost what nobody missed.
FOUND_BY = [
    (11, True, "zstd"),
    (194, False, "zstd and chacha"),
    (207, True, "zstd"),
    (650, True, "zstd"),
    (960, True, "plain"),
    (1296, True, "zstd"),
    (1357, True, "zstd"),
    (5136, True, "chacha"),
    (5777, True, "plain"),
]


@pytest.mark.parametrize(("seed", "durable", "variant"), FOUND_BY)
def test_seeds_that_found_something(tmp_path: Path, seed: int, durable: bool, variant: str) -> None:
    lose_power_at_every_sync(tmp_path, seed, durable, variant)


def lose_power_at_every_sync(folder: Path, seed: int, durable: bool, variant: str = "plain") -> int:
    """How many crashes there were."""
    probe = FaultyFiles()
    models: dict[int, StreamModel] = {}
    with patch("os.urandom", random.Random(seed).randbytes):
        assert run(folder / "whole", probe, seed, OPERATIONS, models, durable, variant)
        probe.release()
        check(folder / "whole", models, f"seed {seed}, no crash", durable, variant)
    # Where every record costs more, each seed stops at a third of the syncs.
    step = 1 if variant == "plain" else 3
    for stop_at in range(1 + seed % step, probe.syncs + 1, step):
        lose_power(folder / "run" / "data", seed, stop_at, durable, variant)
    return probe.syncs


def lose_power(path: Path, seed: int, stop_at: int, durable: bool, variant: str) -> None:
    """One crash; salts and nonces follow from the seed too, so that it comes the same again."""
    where = f"seed {seed}, {'always' if durable else 'lazy'} {variant}, sync {stop_at}"
    files = FaultyFiles(stop_at=stop_at)
    models: dict[int, StreamModel] = {}
    with patch("os.urandom", random.Random(f"{seed} {stop_at}").randbytes):
        run(path, files, seed, OPERATIONS, models, durable, variant)
        files.crash(random.Random(seed * 1000 + stop_at))
        check_erased(path, models, where)
        check(path, models, where, durable, variant)
    shutil.rmtree(path.parent)
