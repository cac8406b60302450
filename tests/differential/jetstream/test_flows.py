"""The same flows of consumers to the genuine server and to Martlet: equal deliveries and answers.

MARTLET_FLOWS_PEER=1 plays them against two genuine servers: a flow that differs there is a fault of
the flow.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.differential.jetstream import flow_cases, push_flow_cases
from tests.differential.jetstream.flow import Ack, Flow, Rest, Take, play_flow
from tests.differential.jetstream.pace import slower
from tests.differential.jetstream.play import Ask, known_differences
from tests.e2e.server import ServerProcess

KNOWN = Path(__file__).with_name("known_flow_differences.tsv")
# A flow in which time passes may meet a machine that is busy just then; and any server may deliver
# between two publishes or after both, which the counts of its ack subjects tell. What the genuine
# server told in any attempt at the same pace is right; later attempts take their time.
PACES = (1, 1, 1, 4, 4, 10)
pytestmark = pytest.mark.peer
Both = tuple[ServerProcess, ServerProcess]


def played(both: Both, flow: Flow) -> list[list[Any]]:
    """What each of them told."""
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda server: play_flow(server, flow), both))


def difference(flow: Flow, genuine: list[Any], ours: list[Any]) -> str:
    """What the first step was told that differs; nothing when all are equal."""
    for at, (theirs, mine) in enumerate(zip(genuine, ours, strict=True)):
        if theirs != mine:
            step = [*flow.steps, "the end"][at]
            return f"step {at}, {step}\n" + "\n".join(unequal(theirs, mine, ""))
    return ""


def unequal(theirs: Any, mine: Any, where: str) -> list[str]:
    """The parts of two records that differ."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        pairs = [(f"{where}.{key}", key) for key in {**theirs, **mine}]
        found = [unequal(theirs.get(key), mine.get(key), path) for path, key in pairs]
        return [line for lines in found for line in lines]
    if isinstance(theirs, list | tuple) and isinstance(mine, list | tuple):
        both = zip_longest(theirs, mine)
        found = [unequal(a, b, f"{where}[{at}]") for at, (a, b) in enumerate(both)]
        return [line for lines in found for line in lines]
    return [] if theirs == mine else [f"  {where}\n    genuine {theirs}\n    ours    {mine}"]


def compare(both: Both, flow: Flow) -> None:
    why = known_differences(KNOWN).get(flow.name)
    right: list[list[Any]] = []
    for pace in PACES[:1] if why else PACES:
        genuine, ours = played(both, slower(flow, pace))
        right.append(genuine)
        differs = "" if ours in right else difference(flow, genuine, ours)
        if not differs:
            break
    if why:
        assert differs, f"equal now, take it out of the list: {why}"
    else:
        assert not differs, differs


def test_a_slower_flow_is_the_same_in_proportion() -> None:
    steps = (
        Ask("CONSUMER.CREATE.S.C", {"config": {"ack_wait": 5, "backoff": [5], "max_deliver": 4}}),
        Ack(1, b'-NAK {"delay": 30}'),
        Take("x", 3, 90),
        Rest(8),
    )
    assert slower(Flow("name", steps, True), 10).steps == (
        Ask(
            "CONSUMER.CREATE.S.C",
            {"config": {"ack_wait": 50, "backoff": [50], "max_deliver": 4}},
        ),
        Ack(1, b'-NAK {"delay": 300}'),
        Take("x", 3, 900),
        Rest(80),
    )


def flows(groups: Any, name: str) -> list[Any]:
    return [pytest.param(flow, id=flow.name) for flow in groups[name]()]


def pulls(name: str) -> Any:
    return pytest.mark.parametrize("flow", flows(flow_cases.GROUPS, name))


def pushes(name: str) -> Any:
    return pytest.mark.parametrize("flow", flows(push_flow_cases.GROUPS, name))


@pytest.mark.feature("5.013", "5.014", "5.015", "5.037", "5.038", "5.077", "5.079")
@pulls("starts")
def test_starts(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.038", "5.077")
@pulls("one_by_one")
def test_one_by_one(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.028", "5.054", "5.055", "5.057", "5.058", "5.059", "5.061", "5.062")
@pytest.mark.feature("5.066", "5.067")
@pulls("requests")
def test_requests(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.055", "5.056", "5.060", "5.061", "5.063", "5.064", "5.065", "5.067")
@pulls("waiting")
def test_waiting(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("1.073", "1.074", "5.016", "5.020", "5.042")
@pulls("acks")
def test_acks(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.039", "5.042")
@pulls("ack_rows")
def test_acks_in_a_row(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.042")
@pulls("forged")
def test_forged_acks(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("1.075", "5.068")
@pulls("next")
def test_ack_and_next(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.018", "5.019", "5.020", "5.039", "5.040")
@pulls("redelivery")
def test_redelivery(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.026", "5.041")
@pulls("pending")
def test_pending_limits(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.043", "5.047", "5.077")
@pulls("removals")
def test_removals(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.035", "5.048")
@pulls("retention")
def test_retention(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.007", "5.010", "5.027")
@pulls("changes")
def test_changes(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.009", "5.046")
@pulls("pauses")
def test_pauses(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.080")
@pulls("resets")
def test_resets(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.003", "5.004", "5.005")
@pulls("ephemerals")
def test_ephemerals(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.013", "5.029", "5.037")
@pushes("starts")
def test_push_starts(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.027", "5.029", "5.046", "5.049")
@pushes("interest")
def test_push_interest(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.030", "5.050")
@pushes("heartbeats")
def test_push_heartbeats(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.017", "5.050", "5.051")
@pushes("flow_control")
def test_flow_control(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.011", "5.022", "5.023", "5.040", "5.041")
@pushes("redelivery")
def test_push_redelivery(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.052")
@pushes("ordered")
def test_ordered(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.070", "5.071", "5.072", "5.073", "5.074")
@pushes("group_requests")
def test_group_requests(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.071")
@pushes("overflow")
def test_overflow(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("1.085", "5.072", "5.073", "5.075")
@pushes("pinned")
def test_pinned(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.074")
@pushes("prioritized")
def test_prioritized(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("1.076", "1.083", "1.084", "1.086", "1.087", "1.088", "1.089")
@pytest.mark.feature("5.024", "5.040", "5.043")
@pushes("events")
def test_events(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("6.001", "6.004", "6.005", "6.007", "6.008", "6.009")
@pushes("buckets")
def test_buckets(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("6.016", "6.017", "6.018")
@pushes("objects")
def test_objects(both: Both, flow: Flow) -> None:
    compare(both, flow)


@pytest.mark.feature("5.016", "5.035")
@pushes("retention")
def test_push_retention(both: Both, flow: Flow) -> None:
    compare(both, flow)
