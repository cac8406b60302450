"""Fields of a consumer that say where its state is and who made it: replicas, memory, direct."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.options import AccountJetStreamOptions, JetStreamOptions
from server.jetstream import consumer_validate as rules
from server.jetstream.apierror import ApiError
from server.jetstream.config import StreamConfig
from server.jetstream.consumer_config import ConsumerConfig
from tests.sim.world import SimWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SimWorld]:
    world = SimWorld(tmp_path)
    world.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_consumers": 2})
    yield world
    world.close()


def create(world: SimWorld, name: str, **config: Any) -> dict[str, Any]:
    body = {"stream_name": "S", "config": {"name": name, "ack_policy": "explicit", **config}}
    return world.ask(f"CONSUMER.CREATE.S.{name}", body)


def code(answer: dict[str, Any]) -> int:
    error: dict[str, int] = answer["error"]
    return error["err_code"]


@pytest.mark.feature("5.031")
def test_one_server_keeps_one_replica(world: SimWorld) -> None:
    assert code(create(world, "C", durable_name="C", num_replicas=2)) == 10074
    assert code(create(world, "C", durable_name="C", num_replicas=-1)) == 10133
    made = create(world, "C", durable_name="C", num_replicas=0)
    assert made["config"]["num_replicas"] == 0
    made = create(world, "E", num_replicas=1, inactive_threshold=10**12)
    assert made["config"]["num_replicas"] == 1


@pytest.mark.feature("5.031")
@pytest.mark.parametrize(
    ("retention", "replicas", "expected"),
    [
        ("limits", 5, 10126), ("interest", 5, 10126), ("limits", -1, 10133),
        ("interest", 1, 10134), ("workqueue", 1, 10134),
        ("limits", 1, 0), ("limits", 0, 0), ("interest", 0, 0), ("workqueue", 3, 0),
    ],
)  # fmt: skip
def test_replicas_beside_those_of_the_stream(retention: str, replicas: int, expected: int) -> None:
    stream = StreamConfig(name="S", subjects=["s"], retention=retention, num_replicas=3)
    asked = ConsumerConfig(durable_name="C", ack_policy="explicit", num_replicas=replicas)
    limits = rules.Limits(stream, JetStreamOptions(), AccountJetStreamOptions())
    try:
        assert rules.check_config(asked, limits, False).num_replicas == replicas
        found = 0
    except ApiError as error:
        found = error.err_code
    assert found == expected


@pytest.mark.feature("5.032")
@pytest.mark.parametrize("is_kill", [False, True])
def test_a_consumer_in_memory_ends_with_the_process(world: SimWorld, is_kill: bool) -> None:
    assert "error" not in create(world, "M", durable_name="M", mem_storage=True)
    assert "error" not in create(world, "F", durable_name="F")
    world.restart(is_kill)
    assert world.ask("CONSUMER.NAMES.S")["consumers"] == ["F"]
    assert code(world.ask("CONSUMER.INFO.S.M")) == 10014


@pytest.mark.feature("5.033")
def test_direct_consumers_push_and_are_not_durable(world: SimWorld) -> None:
    pulling = create(world, "D", direct=True, ack_policy="none")
    assert code(pulling) == 10090
    durable = create(
        world, "D", durable_name="D", direct=True, ack_policy="none", deliver_subject="to"
    )
    assert code(durable) == 10091


@pytest.mark.feature("5.033")
def test_direct_consumers_are_neither_listed_nor_counted_nor_kept(world: SimWorld) -> None:
    for name in ("D", "E", "F"):
        made = create(world, name, direct=True, ack_policy="none", deliver_subject=f"to.{name}")
        assert "error" not in made, made
    assert "error" not in create(world, "C", durable_name="C")
    assert world.ask("CONSUMER.NAMES.S")["consumers"] == ["C"]
    assert [each["name"] for each in world.ask("CONSUMER.LIST.S")["consumers"]] == ["C"]
    world.listen("heard", "to.D")
    world.publish("s.x", b"one")
    world.settle()
    world.pass_time(0.1)
    assert [heard.payload for heard in world.queues["heard"]] == [b"one"]
    world.restart(is_kill=False)
    assert code(world.ask("CONSUMER.INFO.S.D")) == 10014
