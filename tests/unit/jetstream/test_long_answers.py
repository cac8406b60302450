"""Answers about very much are made in steps, and asking for the next page costs a page."""

from __future__ import annotations

import pytest

from server.jetstream.api.request import Request
from server.jetstream.api.streams import SUBJECTS_A_STEP, with_subjects
from server.jetstream.api.system import purge_account
from server.jetstream.apierror import ApiError
from tests.unit.jetstream.engine_world import EngineWorld

COUNT = 2 * SUBJECTS_A_STEP + 10


@pytest.fixture
def world() -> EngineWorld:
    world = EngineWorld()
    world.create("S", subjects=["s.>"])
    for number in range(COUNT):
        world.publish(f"s.{number:06d}")
    world.run()
    return world


@pytest.mark.feature("1.032")
def test_a_page_of_subjects_comes_in_steps(world: EngineWorld) -> None:
    answer = world.ask("STREAM.INFO.S", {"subjects_filter": ">"})
    assert answer["total"] == COUNT
    assert answer["state"]["subjects"] == {f"s.{number:06d}": 1 for number in range(COUNT)}
    answer = world.ask("STREAM.INFO.S", {"subjects_filter": ">", "offset": COUNT - 2})
    assert sorted(answer["state"]["subjects"]) == [f"s.{n:06d}" for n in (COUNT - 2, COUNT - 1)]
    steps = with_subjects(world.stream("S"), {"state": {}}, ">", 0)
    assert sum(1 for _ in steps) == 3


def test_a_stream_that_goes_meanwhile_ends_the_answer(world: EngineWorld) -> None:
    stream = world.stream("S")
    steps = with_subjects(stream, {"state": {}}, ">", 0)
    next(steps)
    world.engine.delete(world.engine.accounts["$G"], stream)
    with pytest.raises(ApiError, match="stream not found"):
        next(steps)


def test_pages_of_streams_by_subject_follow_what_comes_and_goes() -> None:
    world = EngineWorld()
    for name in ("A", "B", "C"):
        world.create(name, subjects=[f"s.{name}"])

    def names() -> list[str]:
        found: list[str] = world.ask("STREAM.NAMES", {"subject": "s.*"})["streams"]
        return found

    owner = world.engine.accounts["$G"]
    assert names() == ["A", "B", "C"]
    assert owner.matching("s.*") is owner.matching("s.*")
    world.update("B", subjects=["t"])
    assert names() == ["A", "C"]
    world.ask("STREAM.DELETE.A")
    world.create("D", subjects=["s.D"])
    assert names() == ["C", "D"]


def test_the_streams_of_an_account_go_one_by_one() -> None:
    world = EngineWorld()
    owner = world.engine.accounts["$G"]
    for name in ("A", "B", "C"):
        world.create(name)
    request = Request(
        world.engine, owner.account, owner, "$JS.API.ACCOUNT.PURGE.$G", ["$G"], "", b"", b""
    )
    assert [len(owner.streams) for _ in purge_account(request)] == [2, 1, 0]
