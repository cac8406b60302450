"""Work over many messages is done in slices: it ends as if at once, and nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from msgspec.structs import replace

from server.jetstream._consumer import ConsumerCore
from tests.sim.world import SimWorld

MS, SECOND, HOUR = 10**6, 10**9, 3600 * 10**9
SLICE = 3
MANY = 1_000_000
MANY_SLICE = 4096
AT_ONCE = 1000
SLICE_S = 0.002


@pytest.fixture
def world() -> Iterator[SimWorld]:
    world = SimWorld()
    yield world
    world.close()


def stream(world: SimWorld, messages: int, **config: Any) -> None:
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
    assert "error" not in world.ask("STREAM.CREATE.S", config)
    publish(world, messages)


def publish(world: SimWorld, messages: int) -> None:
    for number in range(messages):
        world.publish(f"s.{number % 3}", b"x")
    world.settle()


def consumer(world: SimWorld, name: str = "C", **config: Any) -> ConsumerCore:
    config = {
        "durable_name": name, "ack_policy": "explicit", "max_ack_pending": -1, "ack_wait": HOUR,
        "deliver_subject": f"to.{name}", **config,
    }  # fmt: skip
    answer = world.ask(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    assert "error" not in answer, answer
    return world.consumers()[name].core


def hear(world: SimWorld, name: str = "C") -> None:
    world.listen(name, f"to.{name}")
    world.consumers()[name].core.look_for_listeners()
    world.settle()


def pending(world: SimWorld) -> tuple[int, ...]:
    info = world.ask("CONSUMER.INFO.S.C")
    places = (info["delivered"], info["ack_floor"])
    return (
        info["num_ack_pending"], info["num_redelivered"], info["num_pending"],
        *(place[key] for place in places for key in ("consumer_seq", "stream_seq")),
    )  # fmt: skip


def purge(world: SimWorld, **body: Any) -> None:
    assert "error" not in world.ask("STREAM.PURGE.S", body)


def ack(world: SimWorld, seq: int, body: bytes = b"+ACK") -> None:
    world.publish(f"$JS.ACK.S.C.1.{seq}.{seq}.1.0", body)
    world.settle()


PURGES: list[dict[str, Any]] = [
    {"seq": 20}, {"keep": 7}, {"filter": "s.1"}, {"filter": "s.2", "keep": 2}, {},
]  # fmt: skip


@pytest.mark.feature("5.047")
@pytest.mark.parametrize("policy", ["explicit", "all"])
@pytest.mark.parametrize("body", PURGES, ids=str)
def test_a_purge_in_slices_ends_as_one_at_once(body: dict[str, Any], policy: str) -> None:
    ends = []
    for slice_max in (SLICE, 1 << 30):
        world = SimWorld()
        world.engine.hub.swept_at_once_max = slice_max
        stream(world, 30)
        consumer(world, ack_policy=policy, ack_wait=HOUR)
        hear(world)
        ack(world, 2)
        purge(world, **body)
        world.pass_time(1)
        ends.append(pending(world))
        publish(world, 2)
        world.pass_time(1)
        ends[-1] += pending(world)
        world.close()
    assert ends[0] == ends[1]


@pytest.mark.feature("5.047")
def test_acks_between_the_slices_of_a_purge_count(world: SimWorld) -> None:
    world.engine.hub.swept_at_once_max = SLICE
    stream(world, 60)
    core = consumer(world)
    hear(world)
    purge(world, filter="s.1")
    assert core.ack_pending > 40
    for seq in range(1, 31):
        ack(world, seq)
    world.pass_time(1)
    assert core.ack_pending == 20
    assert pending(world)[:3] == (20, 0, 0)


@pytest.mark.feature("5.047")
def test_another_purge_while_the_first_is_cleared_away(world: SimWorld) -> None:
    world.engine.hub.swept_at_once_max = SLICE
    stream(world, 60)
    core = consumer(world)
    hear(world)
    purge(world, filter="s.1")
    purge(world, filter="s.2")
    assert core.ack_pending > 20
    world.pass_time(1)
    assert core.ack_pending == 20
    purge(world)
    assert core.ack_pending == 0


@pytest.mark.feature("5.047")
def test_what_a_purge_took_is_not_delivered_again(world: SimWorld) -> None:
    world.engine.hub.swept_at_once_max = SLICE
    stream(world, 30)
    core = consumer(world, ack_wait=500 * MS)
    hear(world)
    world.queues["C"].clear()
    world.listen("told", "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    purge(world, seq=21)
    for seq in range(1, 21):
        ack(world, seq, b"-NAK")
    world.pass_time(0.2)
    assert core.ack_pending == 10
    assert world.queues["C"] == []
    assert world.queues["told"] == []


@pytest.mark.feature("5.042")
def test_ack_all_in_slices(world: SimWorld) -> None:
    world.engine.hub.swept_at_once_max = SLICE
    stream(world, 200)
    core = consumer(world, ack_policy="all", ack_wait=500 * MS, max_ack_pending=200)
    hear(world)
    world.queues["C"].clear()
    ack(world, 150)
    assert core.ack_pending > 100
    assert pending(world)[-2:] == (150, 150)
    # Neither asked for again nor overdue is what it has not come to yet.
    ack(world, 149, b"-NAK")
    ack(world, 160)
    world.pass_time(0.4)
    assert core.ack_pending == 40
    assert pending(world)[-2:] == (160, 160)
    assert world.queues["C"] == []
    world.pass_time(0.3)
    assert [heard.place for heard in world.queues["C"]] == [("C", seq) for seq in range(161, 201)]


@pytest.mark.feature("5.042")
def test_ack_all_of_many_does_not_give_them_out_again(world: SimWorld) -> None:
    world.engine.hub.swept_at_once_max = 1
    stream(world, 200)
    core = consumer(world, ack_policy="all", ack_wait=300 * MS, max_ack_pending=200)
    hear(world)
    world.queues["C"].clear()
    world.pass_time(0.29)
    ack(world, 200)
    world.pass_time(3)
    assert world.queues["C"] == []
    assert core.ack_pending == 0


@pytest.mark.feature("5.042", "5.081")
def test_an_answered_ack_of_all_outlives_a_kill_before_it_is_carried_out(tmp_path: Path) -> None:
    world = SimWorld(tmp_path)
    world.engine.hub.swept_at_once_max = 1
    stream(world, 200, storage="file")
    consumer(world, ack_policy="all", ack_wait=300 * MS, max_ack_pending=200)
    hear(world)
    world.listen("answered", "a.1")
    world.publish("$JS.ACK.S.C.1.150.150.1.0", b"+ACK", reply="a.1")
    world.settle()
    assert len(world.queues["answered"]) == 1
    assert world.consumers()["C"].core.ack_pending > 100
    world.restart(is_kill=True)
    assert world.consumers()["C"].core.ack_pending == 50
    assert pending(world)[-2:] == (150, 150)
    hear(world)
    world.pass_time(1)
    assert {heard.place for heard in world.queues["C"]} == {("C", seq) for seq in range(151, 201)}
    world.close()


@pytest.mark.feature("5.010")
def test_messages_that_nobody_wants_go_in_slices(world: SimWorld) -> None:
    world.engine.hub.swept_at_once_max = SLICE
    world.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory",
                                  "retention": "interest"})  # fmt: skip
    consumer(world)
    consumer(world, "D", filter_subject="s.1")
    publish(world, 60)
    assert world.stream().state().messages == 60
    world.ask("CONSUMER.DELETE.S.C")
    assert world.stream().state().messages > 50
    # Whoever comes now finds what is left, and keeps it.
    consumer(world, "E", filter_subject="s.2")
    world.pass_time(1)
    subjects = {message.subject for message in messages(world)}
    assert subjects == {"s.1", "s.2"}
    # The third was in the first slice.
    assert world.stream().state().messages == 39
    world.ask("CONSUMER.DELETE.S.E")
    world.ask("STREAM.DELETE.S")
    world.pass_time(1)
    assert world.warnings == []


def messages(world: SimWorld) -> list[Any]:
    store, found = world.stream().store, []
    message = store.load_next(1)
    while message is not None:
        found.append(message)
        message = store.load_next(message.seq + 1)
    return found


@pytest.mark.feature("5.039")
def test_many_that_are_overdue_at_once_come_in_order(world: SimWorld) -> None:
    count = 2 * MANY_SLICE + 1
    fill(world, count)
    core = consumer(world, ack_wait=SECOND)
    deliver_all(world, core, count)
    world.world.now_ns += 2 * SECOND
    world.pass_time(0.3)
    places = [heard.place for heard in world.queues["C"]]
    assert places == [("C", seq) for seq in range(1, count + 1)]


# Other ack waits


def rewait(world: SimWorld, **config: Any) -> None:
    """The consumer gets another configuration; nothing else happens."""
    core = consumer(world, **config)
    assert core is world.consumers()["C"].core


def delivered_again(world: SimWorld, from_s: float, to_s: float) -> list[int]:
    """What comes in that time, which begins now."""
    world.pass_time(from_s)
    world.queues["C"].clear()
    world.pass_time(to_s - from_s)
    return [heard.place[1] for heard in world.queues["C"] if heard.place is not None]


@pytest.mark.feature("5.039")
@pytest.mark.parametrize("slice_max", [1, SLICE, 1 << 30])
def test_other_waits_hold_for_what_is_pending(world: SimWorld, slice_max: int) -> None:
    world.engine.hub.swept_at_once_max = slice_max
    stream(world, 30)
    consumer(world, ack_wait=HOUR)
    hear(world)
    everything = list(range(1, 31))
    world.pass_time(1)
    rewait(world, ack_wait=3 * SECOND)
    assert delivered_again(world, 1.8, 2.3) == everything
    rewait(world, ack_wait=HOUR)
    assert delivered_again(world, 0.1, 30) == []
    rewait(world, ack_wait=40 * SECOND)
    assert delivered_again(world, 9, 11) == everything


@pytest.mark.feature("5.039")
@pytest.mark.parametrize("slice_max", [1, SLICE, 1 << 30])
def test_other_waits_again_before_the_first_are_carried_out(
    world: SimWorld, slice_max: int
) -> None:
    world.engine.hub.swept_at_once_max = slice_max
    stream(world, 30)
    core = consumer(world, ack_wait=HOUR)
    hear(world)
    for seq in (1, 5, 30):
        ack(world, seq, b"-NAK")
    world.settle()
    rewait(world, ack_wait=2 * SECOND)
    rewait(world, ack_wait=60 * SECOND)
    rewait(world, backoff=[5 * SECOND, 9 * SECOND], max_deliver=9)
    for seq in (2, 29):
        ack(world, seq, b"+ACK")
    stay = [seq for seq in range(1, 31) if seq not in (1, 2, 5, 29, 30)]
    assert delivered_again(world, 4.7, 5.4) == stay
    assert delivered_again(world, 3, 4.2) == [1, 5, 30]
    assert core.ack_pending == 28


@pytest.mark.feature("5.039")
def test_what_is_cleared_while_waits_change_is_not_waited_for(world: SimWorld) -> None:
    world.engine.hub.swept_at_once_max = 1
    stream(world, 30)
    consumer(world, ack_wait=SECOND)
    hear(world)
    rewait(world, ack_wait=2 * SECOND)
    purge(world)
    publish(world, 5)
    assert delivered_again(world, 0.5, 1.7) == []
    assert delivered_again(world, 0.1, 0.6) == [31, 32, 33, 34, 35]


# A million


def fill(world: SimWorld, count: int, **config: Any) -> None:
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
    assert "error" not in world.ask("STREAM.CREATE.S", config)
    lines = b"".join(b"PUB s.%d 1\r\nx\r\n" % (number % 10) for number in range(AT_ONCE))
    done = 0
    while done < count:
        part = min(AT_ONCE, count - done)
        world.say_many(lines if part == AT_ONCE else b"PUB s.0 1\r\nx\r\n" * part)
        done += part


def deliver_all(world: SimWorld, core: ConsumerCore, count: int) -> None:
    world.is_deaf = True
    hear(world)
    while core.ack_pending < count:
        world.settle()
    world.is_deaf = False


def slices(world: SimWorld, is_over: Any) -> list[float]:
    """Processor seconds of each slice; somebody else is served between two."""
    took = []
    while not is_over():
        world.world.now_ns += 2 * MS
        started = time.thread_time()
        world.engine.hub.run_timers()
        took.append(time.thread_time() - started)
        world.settle()
    return took


@pytest.mark.slow
@pytest.mark.feature("5.042", "5.047")
@pytest.mark.parametrize("policy", ["explicit", "all"])
def test_a_million_pending_are_cleared_away_beside_others(world: SimWorld, policy: str) -> None:
    fill(world, MANY)
    core = consumer(world, ack_policy=policy)
    deliver_all(world, core, MANY)
    assert core.memory_bytes <= 120 * MANY
    started = time.thread_time()
    if policy == "all":
        world.publish(f"$JS.ACK.S.C.1.{MANY * 9 // 10}.{MANY * 9 // 10}.1.0", b"+ACK")
    else:
        core.purged(MANY * 9 // 10 + 1, MANY, False)
    first_s = time.thread_time() - started
    assert core.ack_pending >= MANY - 2 * MANY_SLICE
    assert first_s < 0.1
    other = consumer(world, "D", deliver_policy="new")
    hear(world, "D")
    world.publish("s.new")
    world.settle()
    assert other.delivered_seq == MANY + 1
    took = slices(world, lambda: core.ack_pending <= MANY // 10 + 1)
    assert len(took) > MANY * 9 // 10 // MANY_SLICE // 2
    assert median(took) <= SLICE_S


@pytest.mark.slow
@pytest.mark.feature("5.010")
def test_a_million_messages_that_nobody_wants_go_beside_others(world: SimWorld) -> None:
    stream(world, 0, retention="interest")
    consumer(world)
    consumer(world, "D", filter_subject="s.1")
    lines = b"".join(b"PUB s.%d 1\r\nx\r\n" % (number % 10) for number in range(AT_ONCE))
    for _ in range(MANY // AT_ONCE):
        world.say_many(lines)
    world.settle()
    assert world.stream().state().messages == MANY
    world.ask("CONSUMER.DELETE.S.C")
    assert world.stream().state().messages >= MANY - 2 * MANY_SLICE
    took = slices(world, lambda: world.stream().state().messages <= MANY // 10)
    assert len(took) > MANY * 9 // 10 // MANY_SLICE // 2
    assert median(took) <= 3 * SLICE_S


@pytest.mark.slow
@pytest.mark.feature("5.039")
def test_a_million_are_waited_for_anew_beside_others(world: SimWorld) -> None:
    fill(world, MANY)
    core = consumer(world)
    deliver_all(world, core, MANY)
    started = time.thread_time()
    core.configure(replace(core.config, ack_wait=2 * HOUR))
    assert time.thread_time() - started < 0.1
    took = slices(world, lambda: not core.is_retiming)
    assert len(took) > MANY // MANY_SLICE // 2
    assert median(took) <= SLICE_S
