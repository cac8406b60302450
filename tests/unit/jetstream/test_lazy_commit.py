"""What a lazy directory answers: not before the message is written, however late that is synced."""

import os
import select
from pathlib import Path
from threading import Event

import pytest

from server.jetstream._commit import LocalCommit
from server.jetstream._ingest import StreamSink
from storage._fs import Files
from storage.filestore import FileStores
from tests.crash.faulty import FaultyFiles
from tests.unit.memory_client import MODERN, World


class HeldFiles(FaultyFiles):
    """Large writes to the log wait, when they are to, until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.held = False
        self.may_go_on = Event()

    def write(self, fd: int, data: bytes, at: int) -> None:
        if self.held and self.paths[fd].endswith(".seg") and len(data) > 16 << 10:
            assert self.may_go_on.wait(60)
        super().write(fd, data, at)


class LazyBench:
    """One stream on `s`, in a lazy directory, and a client that publishes to it."""

    lazy = True

    def __init__(self, path: Path, files: Files | None = None, **options: int) -> None:
        self.stores = FileStores(path, files=files, durable=not self.lazy, **options)
        self.world = world = World()
        self.commit = LocalCommit(world.broker.turn, self.stores.directory, lazy=self.lazy)
        self.shown: list[tuple[int, int]] = []
        self.sink = StreamSink(
            world.broker.account("$G"),
            self.stores.create({"name": "S"}),
            "S",
            self.commit,
            lambda *args: None,
            lambda first, last: self.shown.append((first, last)),
            in_memory=False,
        )
        self.commit.adopt(self.sink)
        self.sink.listen(["s"])
        self.client = world.client(MODERN)
        self.client.say(b"SUB r 1\r\n")

    def publish(self, size: int, reply: bytes = b"r") -> int:
        """How many answers there are by the end of the turn."""
        said = self.client.say(b"PUB s %s %d\r\n%s\r\n" % (reply, size, b"x" * size))
        return said.count(b'"stream"')

    def answered(self, size: int) -> bool:
        """By the end of the turn, or when the loop has heard of it, if the disk was slow lately."""
        count = self.publish(size)
        while count == 0:
            count = self.heard()
        return count == 1

    def heard(self) -> int:
        """How many come when the loop has heard of the disk."""
        return self.heard_text().count(b'"stream"')

    def heard_text(self) -> bytes:
        listener = select.poll()
        for fd in (self.stores.directory.log_event_fd, self.stores.directory.block_event_fd):
            listener.register(fd, select.POLLIN)
        assert listener.poll(10_000), "nobody would ever look"
        self.commit.completed()
        return self.client.take()


@pytest.mark.feature("3.005")
def test_an_answer_waits_until_a_large_batch_is_written(tmp_path: Path) -> None:
    files = HeldFiles()
    bench = LazyBench(tmp_path, files)
    assert bench.answered(10)
    files.held = True
    assert (bench.publish(20 << 10), bench.publish(10)) == (0, 0)
    assert bench.shown == [(1, 1)]
    files.may_go_on.set()
    answers = 0
    while answers < 2:
        answers += bench.heard()
    assert bench.shown[-1][1] == 3
    assert bench.answered(10)
    bench.stores.close()
    files.release()


def test_small_batches_are_answered_at_the_end_of_their_turn(tmp_path: Path) -> None:
    bench = LazyBench(tmp_path)
    at_once = sum(bench.publish(100) for _ in range(300))
    late = 0
    while at_once + late < 300:
        late += bench.heard()
    assert at_once > 0
    bench.stores.close()


def test_what_was_put_off_is_shown_when_it_is_written(tmp_path: Path) -> None:
    bench = LazyBench(tmp_path)
    asked = []
    bench.commit.ask_later = lambda delay_s, then: asked.append(then)
    bench.client.say(b"PUB s 1\r\nx\r\n")
    assert len(asked) == 1
    asked[0]()
    while bench.sink.durable_seq < 1:
        bench.heard()
    bench.stores.close()


def test_a_stream_with_much_is_not_put_off(tmp_path: Path) -> None:
    bench = LazyBench(tmp_path)
    bench.commit.ask_later = lambda delay_s, then: None  # the moment never comes
    bench.client.say(b"PUB s 1\r\nx\r\n" * 2000)
    while bench.sink.durable_seq < 2000:
        bench.heard()
    bench.client.say(b"PUB s 1\r\nx\r\n")
    assert bench.sink.durable_seq == 2000
    bench.stores.close()


def test_a_disk_that_is_full_refuses_what_was_not_written(tmp_path: Path) -> None:
    class Full(FaultyFiles):
        def write(self, fd: int, data: bytes, at: int) -> None:
            if b"y" * 50 in data:
                raise OSError(28, os.strerror(28))
            super().write(fd, data, at)

    files = Full()
    bench = LazyBench(tmp_path, files)
    assert bench.answered(10)
    said = bench.client.say(b"PUB s r 60\r\n%s\r\n" % (b"y" * 60))
    while b"err_code" not in said:
        said += bench.heard_text()
    assert b'"seq":2' not in said
    assert said.count(b'"err_code":10077') == 1, "who waited is told, once"
    assert b"a restart will show whether this message was kept" in said
    assert "No space left" in str(bench.sink.down)
    assert bench.shown == [(1, 1)]
    bench.stores.close()
    files.release()
