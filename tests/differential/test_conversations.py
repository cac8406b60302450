"""Random conversations get the same answers from Martlet as from the genuine server.

MARTLET_CONVERSATIONS=5000 plays more of them than the suite does.
"""

from __future__ import annotations

import os
import re
from itertools import groupby

import pytest

from .conversation import conversation, sizes_around
from .replay import play
from .script import Script, ScriptError
from .servers import Pool
from .test_scripts import difference

COUNT = int(os.environ.get("MARTLET_CONVERSATIONS", "160"))
BATCH = 20
COMPLAINT = "-ERR 'Invalid Publish Subject'\\r\\n"


def message_payload(unit: str) -> str:
    """What stands behind the last line end but one; empty for everything that is no message."""
    return unit.split("\\r\\n")[-2] if unit.startswith(("MSG ", "HMSG ")) else ""


def without_repeats(units: list[str]) -> list[str]:
    pairs = zip(["", *units], units, strict=False)
    return [unit for before, unit in pairs if not unit == before == COMPLAINT]


def in_one_order(told: list[str]) -> list[str]:
    """The copies of one message for several subscriptions have no order; messages have.

    The reference complains once more about a malformed subject when the payload arrives in a later
    read than its line: a run of this complaint counts once.
    """
    ordered: list[str] = []
    for payload, group in groupby(told, message_payload):
        units = list(group)
        ordered += sorted(units) if payload else without_repeats(units)
    return ordered


def without_choice(unit: str) -> str:
    """Of several subscriptions that match the reply, any may get the 503."""
    return re.sub(r"^(HMSG \S+) \S+( .*NATS/1\.0 503)", r"\1 <any>\2", unit)


def answers(kind: str, script: Script, pool: Pool) -> dict[str, list[str]]:
    told = play(script, pool.get(kind, script))
    return {
        name: in_one_order([without_choice(unit) for unit in units]) for name, units in told.items()
    }


@pytest.mark.peer
@pytest.mark.feature("1-044", "1-060", "1-062", "1-066", "1-067", "1-072", "4-020", "4-022")
@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_conversations(first: int, pool: Pool) -> None:
    for seed in range(first, min(first + BATCH, COUNT)):
        script = conversation(seed)
        genuine = answers("nats-server", script, pool)
        try:
            found = difference(genuine, answers("martlet", script, pool))
        except ScriptError as error:
            found = str(error)
        assert not found, f"conversation {seed}:\n{found}"


@pytest.mark.peer
@pytest.mark.feature("1-041", "1-044")
@pytest.mark.parametrize("bits", range(9, 19))
def test_sizes_around_powers_of_two(bits: int, pool: Pool) -> None:
    script = sizes_around(1 << bits)
    genuine, ours = (play(script, pool.get(kind, script)) for kind in ("nats-server", "martlet"))
    for name, units in genuine.items():
        assert [len(unit) for unit in ours[name]] == [len(unit) for unit in units]
        assert ours[name] == units
