"""The same API requests to the genuine server and to Martlet; answers equal but for known rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.jetstream import cases, refusal_cases
from tests.differential.jetstream.client import Client
from tests.differential.jetstream.play import Case, known_differences, play

KNOWN = Path(__file__).with_name("known_differences.tsv")
Pair = tuple[Client, Client]


def compare(pair: Pair, case: Case) -> None:
    genuine, ours = (play(client, case) for client in pair)
    if why := known_differences(KNOWN).get(case.name):
        assert genuine != ours, f"equal now, take it out of the list: {why}"
        return
    for at, (theirs, mine) in enumerate(zip(genuine, ours, strict=True)):
        assert mine == theirs, f"step {at}: {case.steps[at]}"


def named(found: Iterator[Case]) -> list[object]:
    return [pytest.param(case, id=case.name) for case in found]


@pytest.mark.feature("2.001", "2.002", "2.003", "2.006", "2.008", "2.009", "2.010", "2.011")
@pytest.mark.feature(
    "2.012", "2.015", "2.016", "2.017", "2.018", "2.019", "2.022", "2.025", "2.026"
)
@pytest.mark.feature(
    "1.028", "1.029", "1.030", "2.031", "2.032", "2.033", "2.036", "2.039", "2.040"
)
@pytest.mark.feature("2.037", "2.043", "2.044", "2.045", "2.062", "2.063", "2.069")
@pytest.mark.parametrize("case", named(cases.config_cases()))
def test_configurations(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("1.001", "1.011", "1.012", "11.002")
@pytest.mark.parametrize("case", named(cases.body_cases()))
def test_bodies(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("1.014", "1.015", "1.016", "1.017", "1.019", "1.020", "1.021", "1.031")
@pytest.mark.feature("1.033", "1.034", "2.004", "1.040", "1.057", "11.003")
@pytest.mark.parametrize("case", named(cases.plain_cases()))
def test_requests(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature(
    "1.026", "1.032", "1.035", "1.036", "1.037", "1.038", "2.021", "2.046", "2.060"
)
@pytest.mark.feature("2.064", "2.065", "4.001", "4.002", "4.003", "4.004", "4.005")
@pytest.mark.parametrize("case", named(cases.stored_cases()))
def test_messages(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("2.007", "2.030")
@pytest.mark.parametrize("case", named(cases.file_cases()))
def test_streams_on_file(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("2.023", "11.001", "11.003", "11.008")
@pytest.mark.parametrize("case", named(refusal_cases.all_refusals()))
def test_refusals(pair: Pair, case: Case) -> None:
    compare(pair, case)
