"""Stop at every n-th sync, lose what was not synced, open again, compare with what was acked."""

import os
import random
import shutil
from pathlib import Path

import pytest

from storage._directory import DataDirectory
from tests.crash.faulty import FaultyFiles
from tests.crash.workload import TINY, StreamModel, run

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


def check(path: Path, models: dict[int, StreamModel], where: str) -> None:
    """Open twice: the second time sees what the first recovery wrote."""
    for attempt in (1, 2):
        directory = DataDirectory(path, threaded=False, **TINY)
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
                assert home.lost == [], f"{where}: {home.damage}"
        finally:
            directory.close(clean=attempt == 1)
        check_erased(path, models, f"{where}, open {attempt}")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_power_loss_at_every_sync(tmp_path: Path, seed: int) -> None:
    probe = FaultyFiles()
    models: dict[int, StreamModel] = {}
    assert run(tmp_path / "whole", probe, seed, OPERATIONS, models)
    probe.release()
    check(tmp_path / "whole", models, f"seed {seed}, no crash")
    for stop_at in range(1, probe.syncs + 1):
        where = f"seed {seed}, sync {stop_at}"
        path = tmp_path / "run" / "data"
        files = FaultyFiles(stop_at=stop_at)
        models = {}
        run(path, files, seed, OPERATIONS, models)
        files.crash(random.Random(seed * 1000 + stop_at))
        check_erased(path, models, where)
        check(path, models, where)
        shutil.rmtree(path.parent)
