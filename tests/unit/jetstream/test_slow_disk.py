"""A disk that does not keep up slows down who fills it, and nobody else."""

import select
from pathlib import Path

import pytest

from server.jetstream._commit import LocalCommit
from server.jetstream._ingest import StreamSink
from storage.filestore import FileStores
from tests.unit.jetstream.test_lazy_commit import HeldFiles
from tests.unit.memory_client import MODERN, World

PAYLOAD = b"x" * (20 << 10)
PUBLISH = b"PUB s r %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
BACKLOG = 64 << 10


class SlowDisk:
    """A stream whose log is written to when `go_on` is called, and not before."""

    def __init__(self, path: Path) -> None:
        self.files = HeldFiles()
        self.stores = FileStores(path, files=self.files, backlog_bytes_max=BACKLOG)
        self.world = World()
        self.commit = LocalCommit(self.world.broker.turn, self.stores.directory)
        self.sink = StreamSink(
            self.world.broker.account("$G"),
            self.stores.create({"name": "S"}),
            "S",
            self.commit,
            lambda *args: None,
            lambda first, last: None,
            in_memory=False,
        )
        self.commit.adopt(self.sink)
        self.sink.listen(["s"])
        self.publisher = self.world.client(MODERN)
        self.publisher.say(b"SUB r 1\r\n")
        self.files.held = True

    def go_on(self, acks: int) -> bytes:
        """What the publisher hears up to so many acks when the disk works again."""
        self.files.may_go_on.set()
        heard = b""
        while heard.count(b'"seq":') < acks:
            listener = select.poll()
            for fd in (self.stores.directory.log_event_fd, self.stores.directory.block_event_fd):
                listener.register(fd, select.POLLIN)
            assert listener.poll(10_000), "nobody would ever look"
            self.commit.completed()
            heard += self.publisher.take()
        return heard

    def close(self) -> None:
        self.files.may_go_on.set()
        self.stores.close()
        self.files.release()


@pytest.mark.feature("3.005")
def test_a_publisher_waits_for_its_disk(tmp_path: Path) -> None:
    slow = SlowDisk(tmp_path)
    count = 0
    while b"PONG" in slow.publisher.say(PUBLISH + b"PING\r\n"):
        count += 1
        assert count * len(PAYLOAD) <= 2 * BACKLOG, "it should be held by now"
    assert slow.publisher.say(PUBLISH * 3 + b"PING\r\n") == b"", "it is read no further"
    other = slow.world.client(MODERN)
    assert b"PONG" in other.say(b"PUB elsewhere 1\r\nx\r\nPING\r\n"), "others are served"
    heard = slow.go_on(count + 4)
    assert heard.count(b"PONG") == 2
    seqs = [int(part.split(b"}")[0]) for part in heard.split(b'"seq":')[1:]]
    assert seqs == list(range(1, count + 5)), "nothing is lost, and the order kept"
    slow.close()


def test_a_closed_publisher_and_a_closed_directory(tmp_path: Path) -> None:
    slow = SlowDisk(tmp_path)
    while b"PONG" in slow.publisher.say(PUBLISH + b"PING\r\n"):
        pass
    slow.publisher.server_side.close("Client Closed")
    slow.commit.close()
    assert slow.publisher.server_side.closed
    slow.close()
