"""The plays of `liveness.py`: a few in the suite, `make sim SEEDS=2000` for many."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.sim.liveness import made, problem, shorter

SEEDS = int(os.environ.get("MARTLET_SIM_SEEDS", "120"))
FIRST = int(os.environ.get("MARTLET_SIM_FIRST", "1"))
SEEDS_A_TEST = 20


@pytest.mark.feature("5.010", "5.039", "5.041", "5.046", "5.047", "5.073", "5.077")
@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SEEDS_A_TEST))
def test_no_consumer_goes_quiet_with_messages_left(first: int) -> None:
    for seed in range(first, min(first + SEEDS_A_TEST, FIRST + SEEDS)):
        with tempfile.TemporaryDirectory(prefix="martlet-sim-") as home:

            def fresh(home: str = home) -> Path:
                return Path(tempfile.mkdtemp(dir=home))

            play = made(seed)
            why = problem(play, fresh() if play.on_disk else None)
            if why:
                play = shorter(play, fresh)
                how = f"{play.stream} {play.copies} {play.swept}"
                pytest.fail(f"seed {seed}: {why}\n{how}\n{play.config}\n{play.operations}")
