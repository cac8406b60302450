"""Cases: API requests and publishes in a row, told to both servers; their answers compared."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.differential.jetstream.client import Client

API = "$JS.API."
Json = Any
TIMES = ("created", "ts", "first_ts", "last_ts", "time", "timestamp", "last_active")
OF_AN_ORIGIN = ("name", "external", "subject_transforms")
GENERATED = re.compile("[0-9A-Za-z]{8}")
ZERO_TIME = "0001-01-01T00:00:00Z"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


@dataclass(frozen=True)
class Ask:
    """One API request; `body` is JSON, or bytes as they are."""

    subject: str
    body: Json = b""
    headers: bytes = b""


@dataclass(frozen=True)
class Publish:
    subject: str
    payload: bytes = b""
    headers: bytes = b""


@dataclass(frozen=True)
class Case:
    name: str
    steps: tuple[Ask | Publish, ...] = field(default=())


def play(client: Client, case: Case) -> list[Json]:
    """The masked answers; every stream that was made is removed again."""
    answers = [masked(told(client, step)) for step in case.steps]
    clean(client)
    return answers


def told(client: Client, step: Ask | Publish) -> Json:
    if isinstance(step, Publish):
        return parsed(client.request(step.subject, step.payload, step.headers))
    body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
    return parsed(client.request(API + step.subject, body, step.headers))


def parsed(answer: bytes) -> Json:
    try:
        return json.loads(answer)
    except ValueError:
        return answer.decode("latin-1")


def known_differences(table: Path) -> dict[str, str]:
    """Why the cases of a table differ, by name."""
    rows = [line.split("\t") for line in table.read_text().splitlines()[1:] if line]
    return {row[0]: row[1] for row in rows}


def clean(client: Client) -> None:
    names = json.loads(client.request(API + "STREAM.NAMES"))["streams"]
    for name in names or ():
        client.request(API + f"STREAM.DELETE.{name}")


def masked(value: Json, key: str = "", with_progress: bool = False) -> Json:
    """What differs from run to run or by version, replaced by its shape.

    How far mirrors and sources have come is told `with_progress` only: the reference waits a moment
    before it begins.
    """
    if key == "api" and "total" in value:
        # The reference counts what its own mirrors ask as well; unit tests count ours.
        return "<counts>"
    if isinstance(value, dict) and "lag" in value and "active" in value and not with_progress:
        return {name: item for name, item in value.items() if name in OF_AN_ORIGIN}
    if isinstance(value, dict):
        return {name: masked(item, name, with_progress) for name, item in value.items()}
    if isinstance(value, list):
        items = [masked(item, "", with_progress) for item in value]
        # The reference tells its sources' progress in no particular order.
        told_by_chance = key == "sources" and all("lag" in item for item in value)
        return sorted(items, key=str) if told_by_chance else items
    if key in TIMES and value != ZERO_TIME:
        return "<time>" if isinstance(value, str) and TIME.fullmatch(value) else value
    if key in ("_nats.ver", "_nats.level", "level"):
        return "<version>"
    if key == "leader":
        return "<server>"
    if key == "pause_remaining":
        return "<remaining>" if isinstance(value, int) and value > 0 else value
    if key == "name" and isinstance(value, str) and GENERATED.fullmatch(value):
        return "<generated>"
    return value
