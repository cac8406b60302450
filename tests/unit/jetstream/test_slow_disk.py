"""A disk that does not keep up slows down who fills it, and nobody else."""

from pathlib import Path

import pytest

from tests.unit.jetstream.test_lazy_commit import HeldFiles, LazyBench
from tests.unit.memory_client import MODERN

PAYLOAD = b"x" * (20 << 10)
PUBLISH = b"PUB s r %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD)
BACKLOG = 64 << 10


class SlowDisk(LazyBench):
    """Its log is not written to before `go_on`; acks mean durable."""

    lazy = False

    def __init__(self, path: Path) -> None:
        self.files = HeldFiles()
        super().__init__(path, self.files, backlog_bytes_max=BACKLOG)
        self.files.held = True

    def go_on(self, acks: int) -> bytes:
        """What the publisher hears up to so many acks when the disk works again."""
        self.files.may_go_on.set()
        heard = b""
        while heard.count(b'"seq":') < acks:
            heard += self.heard_text()
        return heard

    def close(self) -> None:
        self.files.may_go_on.set()
        self.stores.close()
        self.files.release()


@pytest.mark.feature("3.005")
def test_a_publisher_waits_for_its_disk(tmp_path: Path) -> None:
    slow = SlowDisk(tmp_path)
    count = 0
    while b"PONG" in slow.client.say(PUBLISH + b"PING\r\n"):
        count += 1
        assert count * len(PAYLOAD) <= 2 * BACKLOG, "it should be held by now"
    assert slow.client.say(PUBLISH * 3 + b"PING\r\n") == b"", "it is read no further"
    other = slow.world.client(MODERN)
    assert b"PONG" in other.say(b"PUB elsewhere 1\r\nx\r\nPING\r\n"), "others are served"
    heard = slow.go_on(count + 4)
    assert heard.count(b"PONG") == 2
    seqs = [int(part.split(b"}")[0]) for part in heard.split(b'"seq":')[1:]]
    assert seqs == list(range(1, count + 5)), "nothing is lost, and the order kept"
    slow.close()


def test_who_is_held_goes_on_when_the_directory_is_closed(tmp_path: Path) -> None:
    """Also beside one whose connection was closed meanwhile."""
    slow = SlowDisk(tmp_path)
    other = slow.world.client(MODERN)
    while b"PONG" in slow.client.say(PUBLISH + b"PING\r\n"):
        pass
    assert other.say(b"PUB s 1\r\nx\r\nPING\r\n") == b""
    slow.client.server_side.close("Client Closed")
    slow.sink.close()
    slow.commit.close()
    slow.files.may_go_on.set()
    assert other.say(b"") == b"PONG\r\n"
    slow.close()
