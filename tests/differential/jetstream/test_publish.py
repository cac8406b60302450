"""The same publishes and direct gets to the genuine server and to Martlet: equal answers, equal
streams afterwards. Times are masked; nothing else."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.differential.jetstream import publishes, rare_cases, reshaped_cases
from tests.differential.jetstream.client import Client
from tests.differential.jetstream.play import known_differences
from tests.differential.jetstream.publishes import Publishes, Send

KNOWN = Path(__file__).with_name("known_publish_differences.tsv")
TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
Pair = tuple[Client, Client]
Answer = tuple[str, bytes]
pytestmark = pytest.mark.peer


def masked(data: bytes) -> bytes:
    return TIME.sub(b"<time>", data)


def sent(client: Client, step: Send, number: int) -> list[Answer]:
    """The answers to one step; a barrier where none is waited for."""
    answers = client.exchange(
        step.subject, step.payload, step.headers, f"p{number}{step.reply}", abs(step.answers)
    )
    if step.answers < 0:
        return []
    return [(subject, masked(block + payload)) for subject, block, payload in answers]


def stored(client: Client) -> list[Any]:
    """The stream's state and every message of it."""
    state = json.loads(client.request("$JS.API.STREAM.INFO.S"))["state"]
    found: list[Any] = [{key: state[key] for key in ("messages", "bytes", "first_seq", "last_seq")}]
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = json.loads(
            client.request("$JS.API.STREAM.MSG.GET.S", json.dumps({"seq": seq}).encode())
        )
        message = answer.get("message")
        if message is not None:
            parts = [masked(b64decode(message.get(key, ""))) for key in ("hdrs", "data")]
            found.append((message["subject"], seq, *parts))
    return found


def create(client: Client, config: dict[str, Any]) -> None:
    """A new stream."""
    client.request("$JS.API.STREAM.DELETE.S")
    answer = json.loads(client.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode()))
    assert "error" not in answer, answer
    assert answer["state"]["messages"] == 0


def play(client: Client, case: Publishes) -> list[Any]:
    create(client, {"name": "S", "storage": "memory", **case.config})
    told: list[Any] = [sent(client, step, at) for at, step in enumerate(case.steps)]
    return [*told, stored(client)]


def compare(pair: Pair, case: Publishes) -> None:
    genuine, ours = (play(client, case) for client in pair)
    if why := known_differences(KNOWN).get(case.name):
        assert genuine != ours, f"equal now, take it out of the list: {why}"
        return
    for at, (theirs, mine) in enumerate(zip(genuine, ours, strict=True)):
        assert mine == theirs, f"step {at}: {[*case.steps, 'stored'][at]}"


def cases(group: str) -> list[Any]:
    groups = publishes.GROUPS | reshaped_cases.GROUPS | rare_cases.GROUPS
    return [pytest.param(case, id=case.name) for case in groups[group]()]


@pytest.mark.feature("3.001", "3.002", "3.003", "3.004", "3.005", "3.006", "3.011", "3.012")
@pytest.mark.feature("3.013", "3.014", "3.015", "3.016", "3.023")
@pytest.mark.parametrize("case", cases("headers"))
def test_headers(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("3.017", "3.018", "3.020", "3.029", "3.030")
@pytest.mark.parametrize("case", cases("values"))
def test_values(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("3.032", "3.033", "3.034", "3.037")
@pytest.mark.parametrize("case", cases("schedules"))
def test_schedules(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("3.006", "3.026", "3.027")
@pytest.mark.parametrize("case", cases("limits"))
def test_limits(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("2.018", "4-050", "4-051", "4-052", "4-055")
@pytest.mark.parametrize("case", cases("transform"))
def test_subject_transforms(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("3.026")
@pytest.mark.parametrize("case", cases("republish"))
def test_republishing(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("2.054", "3.017")
@pytest.mark.parametrize("case", cases("rollup"))
def test_rollups(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("3.022", "3.038", "3.039", "3.040", "3.042")
@pytest.mark.parametrize("case", cases("atomic"))
def test_atomic_batches(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("3.045", "3.046", "3.047", "3.048")
@pytest.mark.parametrize("case", cases("fast"))
def test_fast_batches(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("4.006", "4.007", "4.008", "4.009", "4.010", "4.011", "4.012", "4.013")
@pytest.mark.feature("4.014", "4.015")
@pytest.mark.parametrize("case", cases("direct"))
def test_direct_gets(pair: Pair, case: Publishes) -> None:
    compare(pair, case)


@pytest.mark.feature("2.027", "2.028", "3.006", "3.018", "3.032", "3.038", "3.045", "4.012")
@pytest.mark.parametrize("case", cases("rare"))
def test_what_hardly_anybody_sends(pair: Pair, case: Publishes) -> None:
    compare(pair, case)
