"""Every error of the API is provoked by a test, or there is a reason why none can be.

The requests and publishes that are compared with the genuine server are played to an engine in
memory, and what it refuses is gathered by code. `docs/features/errors-elsewhere.tsv` tells of every
other code which test provokes it, or why nothing can on one server.
`python -m tests.unit.jetstream.test_every_error` prints the whole list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from tests.differential.jetstream import cases, consumer_cases, publishes, refusal_cases
from tests.differential.jetstream.play import API, Case, Publish
from tests.differential.jetstream.publishes import Publishes
from tests.unit.jetstream.engine_world import EngineWorld

FEATURES = Path(__file__).parents[3] / "docs" / "features"
REFUSAL = re.compile(rb'"err_code":(\d+),"description":("(?:[^"\\]|\\.)*")')
CASES = (cases, consumer_cases, refusal_cases)


def table(name: str) -> list[list[str]]:
    rows = (FEATURES / name).read_text().splitlines()[1:]
    return [row.split("\t") for row in rows if row]


def all_cases() -> Iterator[Case]:
    for module in CASES:
        for name, found in vars(module).items():
            if name.endswith("_cases") and callable(found) and name != "file_cases":
                yield from found()


def said(world: EngineWorld, subject: str, payload: bytes, headers: bytes, reply: str) -> bytes:
    sizes = f"{len(headers)} {len(headers) + len(payload)}" if headers else str(len(payload))
    verb = "HPUB" if headers else "PUB"
    line = f"{verb} {subject} {reply} {sizes}\r\n".encode("utf-8", "surrogateescape")
    heard = world.client.say(line + headers + payload + b"\r\n")
    world.run()
    return heard + world.client.take()


def played(case: Case) -> Iterator[bytes]:
    world = EngineWorld()
    for step in case.steps:
        if isinstance(step, Publish):
            yield said(world, step.subject, step.payload, step.headers, "r.1")
        else:
            body = step.body if isinstance(step.body, bytes) else json.dumps(step.body).encode()
            yield said(world, API + step.subject, body, step.headers, "r.1")


def published(case: Publishes) -> Iterator[bytes]:
    world = EngineWorld()
    config = {"name": "S", "storage": "memory", **case.config}
    yield said(world, API + "STREAM.CREATE.S", json.dumps(config).encode(), b"", "r.1")
    for at, step in enumerate(case.steps):
        yield said(world, step.subject, step.payload, step.headers, f"r.1.p{at}{step.reply}")


@cache
def provoked() -> dict[int, tuple[str, str]]:
    """By code: the first case that brings it about, and the description."""
    found: dict[int, tuple[str, str]] = {}
    groups = [(case.name, case) for group in publishes.GROUPS.values() for case in group()]
    plays = chain(
        ((case.name, played(case)) for case in all_cases()),
        ((name, published(case)) for name, case in groups),
    )
    for name, answers in plays:
        for code, text in REFUSAL.findall(b"".join(answers)):
            found.setdefault(int(code), (name, json.loads(text)))
    return found


def as_pattern(description: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", ".*", re.escape(description)), re.DOTALL)


@pytest.mark.feature("11.001", "11.002", "11.004", "11.008")
def test_every_error_is_provoked_or_cannot_be() -> None:
    known = {int(row[0]) for row in table("jetstream-errors.tsv")}
    elsewhere = {int(row[0]): row[1:] for row in table("errors-elsewhere.tsv")}
    assert set(elsewhere) <= known
    twice = sorted(set(elsewhere) & set(provoked()))
    assert not twice, f"provoked here now, take them out of errors-elsewhere.tsv: {twice}"
    missing = sorted(known - set(elsewhere) - set(provoked()))
    assert not missing, f"neither provoked nor explained: {missing}"


@pytest.mark.feature("11.001", "11.003", "11.005", "11.006", "11.007")
def test_the_words_are_the_tables() -> None:
    words = {int(row[0]): row[3] for row in table("jetstream-errors.tsv")}
    wrong = {
        code: text
        for code, (_, text) in provoked().items()
        if not as_pattern(words[code]).fullmatch(text)
    }
    assert not wrong


def test_the_tests_that_are_named_exist() -> None:
    root = FEATURES.parents[1]
    for code, how, where in table("errors-elsewhere.tsv"):
        assert how in ("test", "cluster", "never", "unreachable"), code
        if how == "test":
            path, _, name = where.partition("::")
            assert f"def {name}(" in (root / path).read_text(), f"{code}: {where}"
            assert code in (root / path).read_text(), f"{where} does not speak of {code}"


if __name__ == "__main__":
    others = {row[0]: f"{row[1]}: {row[2]}" for row in table("errors-elsewhere.tsv")}
    for number, _, _, words in table("jetstream-errors.tsv"):
        how = others.get(number) or f"provoked by {provoked().get(int(number), ('open',))[0]!r}"
        print(number, words, how, sep="\t")
