"""What the composition root hands from the options to the rooms."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.app import App, apply_to_broker
from server.auth.directory import Directory
from server.clock import SystemClock, SystemRandom
from server.core._broker import Broker
from server.jetstream import consumers
from server.jetstream.config import StreamConfig
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.diskstores import DiskStores
from server.jetstream.engine import Engine
from server.ops.logging import BareFormatter, Level, Logger
from tests.unit.config_files import options


@pytest.mark.feature("1-089", "3-033")
@pytest.mark.parametrize(
    ("text", "is_retried"),
    [("", False), ("write_timeout: close", False), ("write_timeout: retry", True)],
)
def test_the_file_says_whether_a_late_write_is_tried_again(
    tmp_path: Path, text: str, is_retried: bool
) -> None:
    broker, asked = Broker(), options(tmp_path, text)
    apply_to_broker(asked, Directory(asked), broker)
    assert broker.write_retry is is_retried


class Lines:
    """A log that is kept."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def write(self, level: Level, line: bytes) -> None:
        self.all.append(line.decode())

    def close(self) -> None:
        pass


class Switched:
    """A server that does not listen; reloads switch its JetStream on and off."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = Lines()
        self.loop = asyncio.new_event_loop()
        clock = SystemClock()
        logger = Logger(self.lines, BareFormatter(), clock, debug=False, trace=False)
        self.wanted = options(folder, OFF)
        self.app = App(
            self.wanted,
            program="martlet",
            loop=self.loop,
            logger=logger,
            clock=clock,
            random=SystemRandom(),
            reread=lambda: self.wanted,
        )

    def reload(self, text: str) -> None:
        self.wanted = options(self.folder, text.format(folder=self.folder))
        before = self.app.config_loaded_wall_ns
        assert self.app.try_reload() == ""
        assert self.app.config_loaded_wall_ns > before, "it was gone through to its end"

    def create_stream(self) -> None:
        assert self.app.jetstream is not None
        engine = self.app.jetstream.engine
        owner = engine.accounts["$G"]
        wanted = StreamConfig(name="S", subjects=["s"], storage="file", num_replicas=1)
        stream = engine.create(owner, wanted, pedantic=False)
        asked = ConsumerConfig(durable_name="C", ack_policy="explicit")
        consumers.add(engine, stream, asked, "C")
        self.app.broker.turn.run()

    @property
    def subscriptions(self) -> int:
        return self.app.broker.default_account.subscriptions

    @property
    def descriptors_max(self) -> int:
        return self.app._poller.descriptors_max

    def has_logged(self, text: str) -> bool:
        return any(text in line for line in self.lines.all)

    def end(self) -> None:
        self.reload(OFF)
        self.app._poller.close()
        self.app._passwords.close()
        self.loop.close()


OFF = "listen: 127.0.0.1:-1\n"
ON = 'listen: 127.0.0.1:-1\njetstream {{ store_dir: "{folder}/store" }}\n'


@pytest.fixture
def switched(tmp_path: Path) -> Iterator[Switched]:
    found = Switched(tmp_path)
    yield found
    found.end()


def fail(*args: object, **named: object) -> None:
    raise OSError(errno.EIO, "the disk is gone")


@pytest.mark.feature("3-047", "3-088")
def test_what_a_failed_start_of_jetstream_made_goes_again(
    switched: Switched, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched.reload(OFF)
    before = switched.subscriptions
    switched.reload(ON)
    switched.create_stream()
    switched.reload(OFF)
    assert switched.subscriptions == before
    with monkeypatch.context() as patch:
        patch.setattr(consumers, "recover", fail)
        switched.reload(ON)
    assert switched.has_logged("Can't start JetStream: [Errno 5] the disk is gone")
    assert switched.app.jetstream is None
    assert (switched.subscriptions, switched.descriptors_max) == (before, 0)
    # Nobody has its directory any more, and all that was stored is there.
    switched.reload(ON)
    assert switched.app.jetstream is not None
    assert switched.app.jetstream.consumer_names("$G", "S") == {"C"}


@pytest.mark.feature("3-047", "3-088")
def test_consumers_that_cannot_be_read_leave_the_directory_to_the_next_start(
    switched: Switched, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DiskStores, "_found_book", fail)
        switched.reload(ON)
    assert switched.has_logged("Can't start JetStream: [Errno 5] the disk is gone")
    switched.reload(ON + "max_payload: 1000\n")
    assert switched.app.jetstream is not None


@pytest.mark.feature("3-047", "3-088")
@pytest.mark.parametrize("part", ["engine", "stores"])
def test_a_stop_of_jetstream_that_fails_does_not_end_the_reload(
    switched: Switched, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    kind = Engine if part == "engine" else DiskStores
    close = kind.close

    def close_and_fail(self: Any) -> None:
        close(self)
        fail()

    with monkeypatch.context() as patch:
        patch.setattr(kind, "close", close_and_fail)
        switched.reload(ON)
        assert switched.descriptors_max > 0
        assert switched.app.hooks.info.jetstream
        switched.reload(OFF)
    assert switched.has_logged("JetStream did not follow the reload:")
    assert switched.has_logged("the disk is gone")
    assert not switched.app.hooks.info.jetstream
    assert (switched.app.jetstream, switched.descriptors_max) == (None, 0)
    switched.reload(ON)
    assert switched.app.jetstream is not None
