"""Snapshots and restores over memory: chunks and acks, what the archive holds, what is refused."""

from __future__ import annotations

import io
import json
import random
import tarfile
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.jetstream.archive import (
    END,
    MAGIC,
    ArchiveError,
    ArchiveReader,
    Entry,
    encoded,
    number,
)
from server.jetstream.gotime import time_text
from server.wire.s2 import compressed
from tests.unit.jetstream.engine_world import EngineWorld

SECOND = 1_000_000_000
TIMES = st.integers(-(2**62), 2**62)


@given(
    st.lists(
        st.builds(
            Entry,
            st.binary(max_size=20),
            TIMES,
            st.integers(1, 2**64 - 1),
            st.binary(max_size=30),
            st.binary(max_size=300),
        ),
        max_size=8,
    ),
    st.integers(1, 50),
)
def test_an_archive_is_read_in_pieces_of_any_size(entries: list[Entry], size: int) -> None:
    data = MAGIC + b"".join(map(encoded, entries)) + END
    reader, found = ArchiveReader(1000), []
    for at in range(0, len(data), size):
        found += reader.feed(data[at : at + size])
    assert found[:-1] == entries
    assert reader.ended


@pytest.mark.parametrize(
    "data", [b"NATSARC2", b"N" * 8, MAGIC + b"\xff" * 11, MAGIC + number(2**21) + b"\0\0\0\0"]
)
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    with pytest.raises(ArchiveError):
        list(ArchiveReader(1000).feed(data))


class Receiver:
    """Takes a snapshot as a client does."""

    def __init__(self, world: EngineWorld, **asked: Any) -> None:
        self.world = world
        self.archive = b""
        self.replies: list[str] = []
        self.unanswered: list[str] = []
        self.status: bytes | None = None
        world.client.say(b"SUB d.x 9\r\n")
        self.answer = world.ask("STREAM.SNAPSHOT.S", {"deliver_subject": "d.x", **asked})

    def hear(self) -> None:
        """Whatever has come."""
        said = self.world.seen + self.world.client.take()
        self.world.seen = b""
        while said:
            line, said = said.split(b"\r\n", 1)
            words = line.split()
            if words[0] not in (b"MSG", b"HMSG") or words[1] != b"d.x":
                continue
            size = int(words[-1])
            data, said = said[:size], said[size + 2 :]
            block = int(words[-2]) if words[0] == b"HMSG" else 0
            if size == block:
                self.status = data
                continue
            self.archive += data
            has_reply = len(words) == (5 if words[0] == b"MSG" else 6)
            if has_reply:
                self.replies.append(words[3].decode())
                self.unanswered.append(words[3].decode())

    def ack(self) -> None:
        for reply in self.unanswered:
            self.world.publish(reply, b"")
        self.unanswered = []
        self.world.run()

    def to_the_end(self) -> bytes:
        for _ in range(1000):
            self.hear()
            if self.status is not None:
                return self.archive
            self.ack()
        raise AssertionError("no end")


def filled(world: EngineWorld, count: int = 500) -> None:
    world.create("S", subjects=["s.>"], allow_msg_ttl=True)
    for seq in range(1, count + 1):
        world.publish(f"s.{seq % 7}", b"%d" % seq * 20, *(["Mine: 1"] if seq % 3 else []))
    for seq in (1, 2, 100, count):
        world.ask("STREAM.MSG.DELETE.S", {"seq": seq})


def restore(
    world: EngineWorld, config: Any, archive: bytes, size: int = 1000, state: Any = None
) -> dict[str, Any]:
    answer = world.ask("STREAM.RESTORE.S", {"config": config, "state": state or {}})
    if "error" in answer:
        return answer
    subject = answer["deliver_subject"]
    for at in range(0, len(archive), size):
        assert world.request(subject, archive[at : at + size]) == b""
    found: dict[str, Any] = json.loads(world.request(subject, b""))
    return found


@pytest.mark.feature("8.001", "8.003", "8.007", "8.012", "8.013", "1.039")
@pytest.mark.parametrize("chunk_size", [0, 1024, 5000])
def test_a_stream_comes_back_as_it_was(chunk_size: int) -> None:
    world = EngineWorld()
    filled(world)
    before = [(m.seq, m.ts_ns, m.subject, m.headers, m.payload) for m in world.messages("S")]
    state = world.info("S")["state"]
    receiver = Receiver(world, chunk_size=chunk_size)
    archive = receiver.to_the_end()
    if chunk_size == 1024:
        assert receiver.status == b"NATS/1.0 204\r\n\r\n"
        parts = [reply.split(".") for reply in receiver.replies]
        assert [part[-2:] for part in parts] == [["1024", str(n)] for n in range(1, len(parts) + 1)]
        assert all(part[:4] == ["$JS", "SNAPSHOT", "ACK", "S"] for part in parts)
    world.ask("STREAM.DELETE.S")
    world.world.now_ns += SECOND
    answer = restore(world, receiver.answer["config"], archive)
    assert "error" not in answer, answer
    assert answer["state"] == state
    after = [(m.seq, m.ts_ns, m.subject, m.headers, m.payload) for m in world.messages("S")]
    assert after == before
    world.publish("s.new")
    assert world.info("S")["state"]["last_seq"] == state["last_seq"] + 1


@pytest.mark.feature("8.002", "8.003")
def test_no_more_than_a_window_is_unanswered() -> None:
    world = EngineWorld()
    filled(world, 2000)
    receiver = Receiver(world, chunk_size=1024, window_size=4096)
    world.run(20)
    receiver.hear()
    assert len(receiver.unanswered) == 4
    receiver.ack()
    receiver.hear()
    assert len(receiver.unanswered) == 4


@pytest.mark.feature("8.004", "8.011", "1.090")
def test_a_receiver_that_says_nothing_is_told_so() -> None:
    world = EngineWorld()
    filled(world, 2000)
    world.client.say(b"SUB $JS.EVENT.ADVISORY.STREAM.> 8\r\n")
    receiver = Receiver(world, chunk_size=1024, window_size=4096)
    world.run(20)
    receiver.hear()
    world.pass_time(6)
    said = world.client.take()
    assert b"NATS/1.0 408 No Flow Response" in said
    assert b'"error":"no flow response"' in said
    assert world.engine.snapshots._running == set()


@pytest.mark.feature("8.004")
def test_a_receiver_that_goes_away_ends_the_snapshot() -> None:
    world = EngineWorld()
    filled(world, 2000)
    Receiver(world, chunk_size=1024, window_size=4096)
    world.client.say(b"UNSUB 9\r\n")
    world.pass_time(1)
    assert world.engine.snapshots._running == set()
    assert any("no interest" in text for text in world.warnings)


@pytest.mark.feature("8.004")
def test_a_wildcard_is_not_taken_for_the_receiver() -> None:
    """Clients make inboxes under a wildcard that they have, and subscribe a moment later."""
    world = EngineWorld()
    filled(world, 10)
    world.client.say(b"SUB d.> 8\r\n")
    world.ask("STREAM.SNAPSHOT.S", {"deliver_subject": "d.x"})
    world.pass_time(0.5)
    assert b"d.x" not in world.seen + world.client.take()
    world.client.say(b"SUB d.x 9\r\n")
    world.pass_time(0.5)
    assert b"MSG d.x 9 " in world.client.take()


def test_a_stream_that_is_deleted_ends_its_snapshot() -> None:
    world = EngineWorld()
    world.create("S", subjects=["s.>"])
    for _ in range(100):
        world.publish("s.a", random.Random(1).randbytes(8000))
    receiver = Receiver(world, chunk_size=1024, window_size=4096)
    world.ask("STREAM.DELETE.S")
    receiver.to_the_end()
    assert receiver.status == b"NATS/1.0 500 stream closed\r\n\r\n"
    assert world.engine.snapshots._running == set()


@pytest.mark.feature("8.010")
def test_what_is_published_meanwhile_is_not_part_of_it() -> None:
    world = EngineWorld()
    filled(world, 1000)
    receiver = Receiver(world, chunk_size=1024, window_size=1024)
    for _ in range(10):
        world.publish("s.late")
        receiver.hear()
        receiver.ack()
    archive = receiver.to_the_end()
    world.ask("STREAM.DELETE.S")
    answer = restore(world, receiver.answer["config"], archive)
    assert answer["state"]["last_seq"] == 1000


def archive_of(*entries: Entry, state: Any = None, end: bytes = END) -> bytes:
    told = {"first_seq": 1, "last_seq": 3, "bytes": 10, "consumer_count": 0} | (state or {})
    head = Entry(b"state.json", 1, 0, b"", json.dumps(told).encode())
    return compressed(MAGIC + b"".join(map(encoded, (head, *entries))) + end)


def message(seq: int, subject: bytes = b"s.a", headers: bytes = b"", size: int = 1) -> Entry:
    return Entry(subject, SECOND, seq, headers, b"x" * size)


BAD = {
    "empty": b"",
    "no frames": b"nothing of the kind",
    "another archive": compressed(b"x" * 2000),
    "no state": compressed(MAGIC + encoded(message(1)) + END),
    "bad state": archive_of(state={"first_seq": "one"}),
    "no end": archive_of(message(1), end=b""),
    "cut": archive_of(message(1), message(2))[:-5],
    "order": archive_of(message(2), message(1)),
    "no sequence": archive_of(Entry(b"s.a", 5, 0, b"", b"x")),
    "too large": archive_of(message(1, size=2 << 20)),
    "bad ttl": archive_of(message(1, headers=b"NATS/1.0\r\nNats-TTL: x\r\n\r\n")),
    "consumer missing": archive_of(message(1), state={"consumer_count": 1}),
    "bad consumer": archive_of(
        Entry(b"consumers/C", 1, 0, b"", b'{"config":{},"state":null}'), state={"consumer_count": 1}
    ),
    "no json": archive_of(Entry(b"consumers/C", 1, 0, b"", b"{"), state={"consumer_count": 1}),
}  # fmt: skip


@pytest.mark.feature("8.013", "8.017")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_archive_is_refused_and_nothing_is_made(name: str) -> None:
    world = EngineWorld()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory", "allow_msg_ttl": True}
    answer = restore(world, config, BAD[name], 77)
    assert answer["error"]["err_code"] == 10062, answer
    assert answer["error"]["description"].startswith("restore failed: ")
    assert world.ask("STREAM.NAMES")["streams"] is None
    assert world.engine.restores.running == set()
    assert "error" not in restore(world, config, archive_of(message(1)))


@pytest.mark.feature("8.017")
def test_what_has_outlived_itself_leaves_a_gap() -> None:
    world = EngineWorld()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory", "allow_msg_ttl": True}
    short = b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n"
    archive = archive_of(message(1), message(2, headers=short), message(5), state={"last_seq": 9})
    state = restore(world, config, archive)["state"]
    assert (state["messages"], state["last_seq"], state["num_deleted"]) == (2, 9, 7)
    assert [m.seq for m in world.messages("S")] == [1, 5]


@pytest.mark.feature("8.014")
def test_a_stalled_restore_ends_and_leaves_nothing() -> None:
    world = EngineWorld()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    subject = world.ask("STREAM.RESTORE.S", {"config": config})["deliver_subject"]
    world.request(subject, archive_of(message(1))[:30])
    world.pass_time(4)
    assert len(world.engine.restores.running) == 1
    world.pass_time(2)
    assert world.engine.restores.running == set()
    assert any("is stalled" in text for text in world.warnings)
    assert world.ask("STREAM.NAMES")["streams"] is None


@pytest.mark.feature("8.014")
def test_a_chunk_without_a_reply_ends_it() -> None:
    world = EngineWorld()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    subject = world.ask("STREAM.RESTORE.S", {"config": config})["deliver_subject"]
    world.publish(subject, b"abc")
    world.run()
    assert world.engine.restores.running == set()
    assert any("requires reply subject" in text for text in world.warnings)


@pytest.mark.feature("8.012")
def test_what_is_taken_meanwhile_is_not_replaced() -> None:
    world = EngineWorld()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    archive = archive_of(message(1))
    subject = world.ask("STREAM.RESTORE.S", {"config": config})["deliver_subject"]
    world.request(subject, archive)
    world.create("S", subjects=["other"])
    answer = json.loads(world.request(subject, b""))
    assert "already in use" in answer["error"]["description"]
    assert world.info("S")["config"]["subjects"] == ["other"]


# What earlier versions of the reference made; how is told in the files' neighbour README.md.
OLD = sorted(Path(__file__).with_name("archives").glob("*.json"))


@pytest.mark.feature("8.006", "8.015", "8.019")
@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_archives_of_earlier_versions(path: Path) -> None:
    made = json.loads(path.read_bytes())
    world = EngineWorld()
    config = made["config"] | {"storage": "memory"}
    answer = restore(world, config, b64decode(made["archive"]), 700, made["state"])
    assert "error" not in answer, answer
    told = answer["state"]
    for key in ("messages", "first_seq", "last_seq", "num_deleted"):
        assert told[key] == made["state"][key], key
    found = [
        [m.seq, m.subject, time_text(m.ts_ns), *(b64encode(p).decode() for p in parts(m))]
        for m in world.messages("S")
    ]
    assert found == made["messages"]
    for name, floor in made["floors"].items():
        info = world.ask(f"CONSUMER.INFO.S.{name}")
        assert info["ack_floor"]["stream_seq"] == max(floor, 24)
        assert info["config"]["ack_policy"] == "explicit"


def parts(message: Any) -> tuple[bytes, bytes]:
    return message.headers, message.payload


def tar_of(name: str, content: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.size, info.type = len(content), kind
        archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


META = b'{"name":"S","subjects":["s.>"],"storage":"file"}'
BAD_TARS = {
    "another stream": tar_of("meta.inf", META.replace(b'"S"', b'"T"')),
    "no json": tar_of("meta.inf", b"{"),
    "a link": tar_of("meta.inf", b"", tarfile.SYMTYPE),
    "blocks first": tar_of("msgs/1.blk", bytes(100)),
    "no stream": tar_of("something", b"x" * 1000),
    "bad header": b"meta.inf" + bytes(140) + b"0000001\0" + b"x" * 1000,
    "cut": tar_of("meta.inf", META)[:600],
    "bad block": tar_of("meta.inf", META)[:2048].rstrip(b"\0").ljust(1024, b"\0")
    + tar_of("msgs/1.blk", b"\xff" * 100),
    "bad consumer": tar_of("meta.inf", META)[:1024] + tar_of("obs/C/o.dat", b"\x16\x02\x80"),
}


@pytest.mark.feature("8.019")
@pytest.mark.parametrize("name", BAD_TARS)
def test_bad_archives_of_earlier_versions(name: str) -> None:
    world = EngineWorld()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    answer = restore(world, config, compressed(BAD_TARS[name]), 99)
    assert answer["error"]["err_code"] == 10062, answer
    assert world.ask("STREAM.NAMES")["streams"] is None


def test_a_good_small_tar_and_long_names() -> None:
    world = EngineWorld()
    config = {"name": "S", "subjects": ["s.>"], "storage": "memory"}
    long = tar_of("x" * 300, b"ignored")
    archive = tar_of("meta.inf", META)[:1024] + long
    answer = restore(world, config, compressed(archive), 99)
    assert answer["state"]["messages"] == 0
