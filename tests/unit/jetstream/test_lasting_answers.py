"""Answers that tell of what has to last leave when it does; the loop waits for nothing."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from server.jetstream.stores import MemoryStores, StreamConfig, StreamStore
from tests.unit.jetstream.engine_world import EngineWorld

CREATED = {"name": "S", "subjects": ["s.>"], "storage": "memory"}


class SlowStores(MemoryStores):
    """What is created, saved or removed lasts when the test says so."""

    changed = 0
    waits = False

    @property
    def changes(self) -> int:
        return self.changed

    @property
    def unsettled(self) -> bool:
        return self.waits

    def change(self) -> None:
        self.changed += 1
        self.waits = True

    def create(self, account: str, config: StreamConfig, created_ns: int) -> StreamStore:
        self.change()
        return super().create(account, config, created_ns)

    def save(self, account: str, config: StreamConfig, created_ns: int) -> None:
        self.change()

    def remove(self, account: str, config: StreamConfig, store: StreamStore) -> None:
        self.change()
        super().remove(account, config, store)


class SlowWorld(EngineWorld):
    def __init__(self) -> None:
        super().__init__()
        self.stores = SlowStores()
        self.engine.stores = self.stores
        self.asked: list[Callable[[str | None], None]] = []
        self.engine.when_settled = lambda then: self.asked.append(then)

    def send(self, subject: str, body: Any = b"") -> bytes:
        data = json.dumps(body).encode() if body else b""
        said = self.client.say(
            b"PUB $JS.API.%b r.1 %d\r\n%b\r\n" % (subject.encode(), len(data), data)
        )
        self.run()
        return said + self.client.take()

    def settle(self, why_not: str | None = None) -> list[dict[str, Any]]:
        """The disk is done: the answers that leave."""
        self.stores.waits = False
        asked, self.asked = self.asked, []
        for then in asked:
            then(why_not)
        self.run()
        lines = self.client.take().split(b"\r\n")
        return [json.loads(line) for line in lines if line.startswith(b"{")]


def test_a_stream_is_told_of_when_it_lasts() -> None:
    world = SlowWorld()
    assert world.send("STREAM.CREATE.S", CREATED) == b""
    assert world.send("STREAM.INFO.S") == b""
    created, info = world.settle()
    assert created["type"].endswith("stream_create_response")
    assert info["type"].endswith("stream_info_response")
    assert b"stream_info_response" in world.send("STREAM.INFO.S")


@pytest.mark.parametrize(
    ("verb", "body", "code"),
    [("CREATE", CREATED, 10049), ("UPDATE", CREATED, 10069), ("DELETE", b"", 10050)],
)
def test_what_does_not_last_is_refused(verb: str, body: Any, code: int) -> None:
    world = SlowWorld()
    if verb != "CREATE":
        world.send("STREAM.CREATE.S", CREATED)
        world.settle()
    assert world.send(f"STREAM.{verb}.S", body) == b""
    assert world.send("STREAM.NAMES") == b""
    refused, names = world.settle("the disk is gone")
    assert refused["error"] == {"code": 500, "err_code": code, "description": "the disk is gone"}
    assert "error" not in names
    assert world.warnings == [f"$JS.API.STREAM.{verb}.S could not be kept: the disk is gone"]
