"""A purge and lowered limits go slice by slice: between two slices all is as at any other time."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from statistics import median
from typing import Any

import pytest
from msgspec.structs import replace

from server.jetstream.api.request import Answer
from server.jetstream.api.streams import enforced
from server.jetstream.apierror import ApiError
from server.jetstream.stream import REMOVED_AT_ONCE
from tests.sim.world import SimWorld

MANY = 1_000_000
SLICE_S = 0.002


@pytest.fixture
def world() -> Iterator[SimWorld]:
    world = SimWorld()
    world.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"})
    yield world
    world.close()


def fill(world: SimWorld, messages: int) -> None:
    """Half of them on s.0, the others on s.1."""
    for begin in range(0, messages, 1000):
        numbers = range(begin, min(begin + 1000, messages))
        world.say_many(b"".join(b"PUB s.%d 1\r\nx\r\n" % (number % 2) for number in numbers))
    world.settle()


def consumer(world: SimWorld, **config: Any) -> None:
    config = {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": -1, **config}
    answer = world.ask("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    assert "error" not in answer, answer
    world.listen("pulled", "_INBOX.pulled")


def pull(world: SimWorld, batch: int) -> list[str]:
    """The ack subjects of what came; `no_wait`, so that a lack of messages is told."""
    world.queues["pulled"].clear()
    body = b'{"batch":%d,"no_wait":true}' % batch
    world.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, reply="_INBOX.pulled")
    world.settle()
    return [heard.reply for heard in world.queues["pulled"] if heard.reply]


def sequence(reply: str) -> int:
    return int(reply.split(".")[5])


def finish(slices: Generator[None, None, int]) -> int:
    while True:
        try:
            next(slices)
        except StopIteration as done:
            return int(done.value)


@pytest.mark.feature("1.035", "2.060")
def test_what_is_published_between_slices_stays(world: SimWorld) -> None:
    fill(world, 4 * REMOVED_AT_ONCE)
    slices = world.stream().purge_in_slices("s.0", 0, 0)
    next(slices)
    fill(world, 10)
    assert finish(slices) == 2 * REMOVED_AT_ONCE
    answer = world.ask("STREAM.INFO.S", {"subjects_filter": ">"})
    assert answer["state"]["subjects"] == {"s.0": 5, "s.1": 2 * REMOVED_AT_ONCE + 5}


@pytest.mark.parametrize("messages", [10, 5_000])
@pytest.mark.parametrize("filtered", [False, True])
def test_consumers_go_on_at_once_behind_a_rollup_of_all(
    world: SimWorld, messages: int, filtered: bool
) -> None:
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory", "allow_rollup_hdrs": True}
    world.ask("STREAM.UPDATE.S", config)
    fill(world, messages)
    consumer(world, **({"filter_subject": "s.0"} if filtered else {}))
    pull(world, 3)
    world.publish("s.0", b"all", head="NATS/1.0\r\nNats-Rollup: all\r\n\r\n")
    world.settle()
    state = world.ask("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["num_subjects"]) == (1, messages + 1, 1)
    info = world.ask("CONSUMER.INFO.S.C")
    assert (info["num_pending"], info["num_ack_pending"]) == (1, 0)
    assert [sequence(reply) for reply in pull(world, 9)] == [messages + 1]
    fill(world, 4)
    assert len(pull(world, 9)) == (2 if filtered else 4)


@pytest.mark.feature("2.061")
@pytest.mark.parametrize("filtered", [False, True])
def test_a_consumer_goes_on_between_slices_and_behind_them(world: SimWorld, filtered: bool) -> None:
    fill(world, 4 * REMOVED_AT_ONCE)
    consumer(world, **({"filter_subject": "s.0"} if filtered else {}))
    given = pull(world, 3)
    slices = world.stream().purge_in_slices("s.0", 0, 0)
    next(slices)
    given += pull(world, 3)
    for reply in given:
        world.publish(reply, b"+ACK")
    # The first slice took the first of s.0: those of the second pull are what is still there.
    assert [sequence(reply) for reply in given[:3]] == ([1, 3, 5] if filtered else [1, 2, 3])
    there = world.stream().store.load
    assert all(there(sequence(reply)) for reply in given[3:])
    finish(slices)
    world.settle()
    info = world.ask("CONSUMER.INFO.S.C")
    assert info["num_ack_pending"] == 0
    left = [seq for seq in range(1, 4 * REMOVED_AT_ONCE + 1) if seq % 2 == 0]
    behind = [seq for seq in left if seq > sequence(given[-1])]
    assert info["num_pending"] == (0 if filtered else len(behind))
    assert [sequence(reply) for reply in pull(world, 4)] == ([] if filtered else behind[:4])


@pytest.mark.feature("2.061")
def test_nothing_left_for_a_consumer_is_told_in_the_middle(world: SimWorld) -> None:
    fill(world, 2 * REMOVED_AT_ONCE + 2)
    consumer(world, filter_subject="s.0")
    slices = world.stream().purge_in_slices("s.0", 0, 0)
    next(slices)
    assert [sequence(reply) for reply in pull(world, 9)] == [2 * REMOVED_AT_ONCE + 1]
    assert pull(world, 1) == []
    (told,) = world.queues["pulled"]
    assert told.headers.startswith(b"NATS/1.0 404")
    finish(slices)
    assert world.ask("CONSUMER.INFO.S.C")["num_pending"] == 0


@pytest.mark.feature("1.035")
def test_a_stream_that_goes_in_the_middle(world: SimWorld) -> None:
    fill(world, 4 * REMOVED_AT_ONCE)
    slices = world.stream().purge_in_slices("s.0", 0, 0)
    next(slices)
    assert world.ask("STREAM.DELETE.S")["success"]
    with pytest.raises(ApiError, match="stream not found"):
        finish(slices)


def lower(world: SimWorld, **limits: Any) -> Generator[None, None, Answer]:
    """The first slice of an update is done when this returns."""
    engine = world.engine
    owner = engine.accounts["$G"]
    config = replace(world.stream().config, **limits)
    engine.update(owner, world.stream(), config, pedantic=False)
    return enforced(world.stream())


@pytest.mark.feature("2.046")
@pytest.mark.parametrize(
    ("limits", "left"),
    [({"max_msgs": 100}, 100), ({"max_bytes": 4100}, 4100), ({"max_msgs_per_subject": 40}, 80)],
    ids=str,
)
def test_lowered_limits_are_carried_out_in_slices(
    world: SimWorld, limits: dict[str, int], left: int
) -> None:
    fill(world, 8 * REMOVED_AT_ONCE)
    slices = lower(world, **limits)
    next(slices)
    before = world.stream().state()
    world.publish("s.0", b"x")
    world.settle()
    after = world.stream().state()
    assert REMOVED_AT_ONCE // 2 <= before.messages - after.messages <= 2 * REMOVED_AT_ONCE
    for _ in slices:
        pass
    state = world.stream().state()
    assert state.bytes <= left if "max_bytes" in limits else state.messages == left
    fill(world, 10)
    state = world.stream().state()
    assert state.bytes <= left if "max_bytes" in limits else state.messages == left


@pytest.mark.slow
@pytest.mark.feature("1.035")
def test_the_slices_of_a_purge_of_many_are_short(world: SimWorld) -> None:
    fill(world, MANY)
    slices = world.stream().purge_in_slices("s.0", 0, 10)
    took, at = [], time.thread_time()
    for _ in slices:
        now = time.thread_time()
        took.append(now - at)
        at = now
    assert len(took) > MANY // 4 // REMOVED_AT_ONCE
    assert median(took) <= SLICE_S / 4
    assert world.stream().state().messages == MANY // 2 + 10
