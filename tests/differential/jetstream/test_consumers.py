"""Consumers' API: the same requests to the genuine server and to Martlet, answers equal."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.differential.jetstream import consumer_cases as cases
from tests.differential.jetstream.client import Client
from tests.differential.jetstream.play import Ask, Case, clean, masked, parsed, told
from tests.differential.jetstream.test_api import Pair, compare, named


@pytest.mark.feature("5.013", "5.016", "5.018", "5.019", "5.021", "5.022", "5.024", "5.025")
@pytest.mark.feature("5.026", "5.028", "5.029", "5.030", "5.034", "5.069", "5.076", "5.078")
@pytest.mark.parametrize("case", named(cases.config_cases()))
def test_configurations(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("5.001", "5.007", "5.008", "5.009", "5.012")
@pytest.mark.parametrize("case", named(cases.update_cases()))
def test_updates(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("5.002", "1.045", "1.046", "1.047", "1.048")
@pytest.mark.parametrize("case", named(cases.form_cases()))
def test_forms(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("5.036", "1.049", "1.050", "1.051", "1.052", "1.054", "1.057")
@pytest.mark.parametrize("case", named(cases.request_cases()))
def test_requests(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("1.056")
@pytest.mark.parametrize("case", named(cases.reset_cases()))
def test_resets(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("5.014", "5.015", "5.079")
@pytest.mark.parametrize("case", named(cases.start_cases()))
def test_starts(pair: Pair, case: Case) -> None:
    compare(pair, case)


@pytest.mark.feature("5.006", "5.035")
@pytest.mark.parametrize("case", named(cases.stream_cases()))
def test_beside_others(pair: Pair, case: Case) -> None:
    compare(pair, case)


GROUP = {"priority_policy": "overflow", "priority_groups": ["a"]}
TOLD = (
    cases.STREAM,
    cases.durable(),
    cases.consumer("E", inactive_threshold=cases.SECOND * 60),
    cases.durable(description="x"),
    cases.pause(),
    cases.pause(),
    cases.pause(None),
    cases.durable("P", pause_until=cases.FUTURE),
    cases.durable("Q", pause_until=cases.PAST),
    cases.durable("U", **GROUP),
    Ask("CONSUMER.UNPIN.S.U", {"group": "a"}),
    Ask("CONSUMER.UNPIN.S.U", {"group": "b"}),
    cases.delete("U"),
    cases.delete("U"),
)
UNPINS = ({}, {"group": ""}, {"group": "a b"}, {"group": "x" * 17}, {"group": "b"}, {"group": "a"})


@pytest.mark.feature("1.055")
def test_unpinning(pair: Pair) -> None:
    asks = tuple(Ask("CONSUMER.UNPIN.S.U", body) for body in UNPINS)
    compare(pair, Case("unpin", (cases.STREAM, cases.durable("U", **GROUP), *asks)))


@pytest.mark.feature("1.083")
def test_events(pair: Pair) -> None:
    """The genuine server tells them when it gets to it, maybe behind the next answer."""
    ours = heard(pair[1], (0, 0))
    assert len(ours[0]) > len(TOLD) // 2
    assert heard(pair[0], (len(ours[0]), len(ours[1]))) == ours


Events = list[tuple[str, Any]]


def heard(client: Client, counts: tuple[int, int]) -> tuple[Events, Events]:
    """What the steps and the removal bring about, so many each; a pause is not masked."""
    client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.>", 7)
    events: Events = []
    for step in TOLD:
        told(client, step)
        events += fresh(client)
    events += until(client, counts[0] - len(events))
    clean(client)
    last = fresh(client)
    last += until(client, counts[1] - len(last))
    client.unsubscribe(7)
    return events, sorted(last, key=lambda event: event[0])


def until(client: Client, count: int) -> Events:
    """So many more, or what came within five seconds."""
    events: Events = []
    deadline = time.monotonic() + 5
    while len(events) < count and time.monotonic() < deadline:
        events += fresh(client)
    return events


def fresh(client: Client) -> Events:
    found = [message for message in client.settled() if message[0].startswith("$JS.EVENT")]
    return [(subject, without_id(masked(parsed(payload)))) for subject, _, payload in found]


def without_id(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != "id"}
