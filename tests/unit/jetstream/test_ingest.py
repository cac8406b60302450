"""The ingest over memory: what it answers, when, and what it does at its bounds."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from server.jetstream._commit import LocalCommit
from server.jetstream._ingest import StreamSink, Usage
from storage._store import StreamStore
from storage.memstore import open_memory_store
from storage.ports import StoreLimits
from tests.unit.memory_client import MODERN, World


class HeldCommit:
    """A disk that is done when the test says so."""

    def __init__(self) -> None:
        self.dirtied: list[StreamSink] = []
        self.errors: list[BaseException] = []

    def dirty(self, sink: StreamSink) -> None:
        self.dirtied.append(sink)

    def broken(self, sink: StreamSink, error: BaseException) -> None:
        self.errors.append(error)
        sink.down = "stream is down"

    def end_turn(self) -> None:
        for sink in self.dirtied:
            sink.close_turn()
        self.dirtied.clear()


class Bench:
    """One stream S on `s.>`, and a client that publishes to it."""

    def __init__(self, limits: StoreLimits | None = None, window_ns: int = 0) -> None:
        self.world = World()
        self.commit = HeldCommit()
        self.shown: list[tuple[int, int]] = []
        self.handed: list[tuple[bytes, bytes, bytes, bytes]] = []
        self.store: StreamStore = open_memory_store(limits or StoreLimits())
        account = self.world.broker.account("$G")
        self.sink = StreamSink(
            account,
            self.store,
            "S",
            self.commit,
            self.hand,
            lambda first, last: self.shown.append((first, last)),
            in_memory=False,
            window_ns=window_ns,
        )
        self.sink.listen(["s.>"])
        self.client = self.world.client(MODERN)
        self.client.say(b"SUB r.> 1\r\n")

    def hand(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self.handed.append((subject, reply, headers, payload))

    def publish(self, *fields: str, subject: str = "s.a", reply: str = "r.1") -> bytes:
        if not fields:
            return self.client.say(f"PUB {subject} {reply} 1\r\nx\r\n".encode())
        block = "\r\n".join(["NATS/1.0", *fields, "", ""])
        line = f"HPUB {subject} {reply} {len(block)} {len(block) + 1}\r\n"
        return self.client.say(f"{line}{block}x\r\n".encode())

    def durable(self, seq: int | None = None) -> list[dict[str, object]]:
        """The disk has all up to `seq`: what the client is told."""
        self.commit.end_turn()
        self.sink.release(self.sink.last_seq if seq is None else seq)
        self.world.broker.turn.run()
        return bodies(self.client.take())


def bodies(said: bytes) -> list[dict[str, object]]:
    return [json.loads(line[line.index(b"{") :]) for line in said.split(b"\r\n") if b"{" in line]


def error_codes(answers: list[dict[str, object]]) -> list[object]:
    return [a["error"]["err_code"] if "error" in a else a["seq"] for a in answers]  # type: ignore[index]


@pytest.mark.feature("3.001", "3.005", "3.008")
def test_nothing_is_told_or_shown_before_it_is_durable_and_acks_come_in_order() -> None:
    bench = Bench()
    assert bench.publish(reply="r.1") + bench.publish(reply="r.2") + bench.publish() == b""
    assert bench.shown == []
    assert [a["seq"] for a in bench.durable(2)] == [1, 2]
    assert bench.shown == [(1, 2)]
    assert [a["seq"] for a in bench.durable()] == [3]
    assert bench.shown == [(1, 2), (3, 3)]


@pytest.mark.feature("3.006", "3.013")
def test_a_refusal_waits_for_what_it_tells_of() -> None:
    bench = Bench()
    bench.publish()
    bench.publish("Nats-Expected-Last-Sequence: 0")
    assert bench.durable(0) == []
    assert error_codes(bench.durable()) == [1, 10071]


@pytest.mark.feature("3.011")
def test_a_duplicate_is_acknowledged_only_when_the_first_one_is_durable() -> None:
    bench = Bench(window_ns=10**9)
    bench.publish("Nats-Msg-Id: a")
    bench.publish("Nats-Msg-Id: a")
    assert bench.durable(0) == []
    assert bench.durable() == [
        {"stream": "S", "seq": 1},
        {"stream": "S", "seq": 1, "duplicate": True},
    ]
    bench.world.now_ns += 10**9
    bench.publish("Nats-Msg-Id: a")
    assert bench.durable() == [{"stream": "S", "seq": 2}]


@pytest.mark.feature("3.007")
@pytest.mark.parametrize("bound", ["waiting_messages_max", "waiting_bytes_max"])
def test_beyond_the_bound_a_publish_is_refused_until_the_disk_has_caught_up(bound: str) -> None:
    bench = Bench()
    setattr(bench.sink, bound, 2 if bound == "waiting_messages_max" else 40)
    assert bench.publish() + bench.publish() == b""
    said = bench.publish()
    assert b"NATS/1.0 429 Too Many Requests\r\n\r\n" in said
    assert error_codes(bodies(said)) == [10167], "it waits for no disk"
    assert error_codes(bench.durable()) == [1, 2]
    assert bench.sink.waiting_messages == bench.sink.waiting_bytes == 0
    bench.publish()
    assert error_codes(bench.durable()) == [3]


@pytest.mark.feature("3.007")
@pytest.mark.parametrize("field", ["Nats-Msg-Id: a", "Nats-Expected-Last-Sequence: 9"])
def test_answers_that_wait_for_the_disk_are_bounded_too(field: str) -> None:
    """Duplicates and refusals store nothing, and wait for what is stored all the same."""
    bench = Bench(window_ns=10**9)
    bench.sink.answer_bytes_max = 2_000
    bench.publish("Nats-Msg-Id: a")
    said = b"".join(bench.publish(field) for _ in range(100))
    assert error_codes(bodies(said)) == [10167] * said.count(b"MSG r.1 1 ")
    waiting = bench.durable()
    assert 5 < len(waiting) < 50
    assert len(waiting) + said.count(b"MSG r.1 1 ") == 101
    bench.publish("Nats-Msg-Id: b")
    assert error_codes(bench.durable()) == [2]


def test_a_store_that_is_down_refuses_at_once() -> None:
    bench = Bench()
    bench.publish()
    bench.sink.down = "no space left"
    answers = bodies(bench.publish())
    assert error_codes(answers) == [10077]
    assert answers[0]["error"]["description"] == "no space left"  # type: ignore[index]
    assert bench.store.messages == 1
    assert error_codes(bench.durable(0)) == []


@pytest.mark.parametrize("bound", ["waiting_messages_max", "answer_bytes_max"])
def test_a_store_that_is_down_says_why_and_not_that_it_is_busy(bound: str) -> None:
    bench = Bench()
    setattr(bench.sink, bound, 1)
    bench.publish()
    assert error_codes(bodies(bench.publish())) == [10167]
    bench.sink.down = "no space left"
    assert error_codes(bodies(bench.publish())) == [10077]


@pytest.mark.feature("3.003")
def test_without_a_reply_nothing_is_said() -> None:
    bench = Bench()
    bench.client.say(b"PUB s.a 1\r\nx\r\n")
    assert bench.durable() == []
    assert bench.store.messages == 1


def test_limits_of_account_and_server() -> None:
    bench = Bench()
    server = Usage(max=100)
    bench.sink.usage = Usage(max=50, parent=server)
    for _ in range(3):
        bench.publish()
    assert error_codes(bench.durable()) == [1, 2, 10002]
    assert server.used == bench.store.bytes == 40
    server.max = 39
    bench.publish()
    assert error_codes(bench.durable()) == [10023]
    bench.store.purge()
    bench.sink.removed()
    assert server.used == 0
    bench.publish()
    assert error_codes(bench.durable()) == [3]


@pytest.mark.parametrize(
    "field",
    ["Nats-TTL: 1", "Nats-Rollup: sub", "Nats-Incr: 1", "Nats-Schedule: x", "Nats-Batch-Id: b",
     "Nats-Stream-Source: x", "Nats-Request-Info: {}",
     "Nats-Expected-Last-Subject-Sequence-Subject: s.a"],
)  # fmt: skip
def test_what_needs_more_is_handed_over_in_order(field: str) -> None:
    bench = Bench()
    bench.publish(field)
    assert [each[0] for each in bench.handed] == [b"s.a"]
    assert bench.store.messages == 0
    bench.publish("A: b", "nats-ttl: 1", "X-Nats-Rollup: sub")
    assert len(bench.handed) == 1
    assert bench.store.messages == 1


def test_an_invariant_that_breaks_stops_this_stream_only() -> None:
    bench = Bench()

    def fail(*args: object) -> None:
        raise RuntimeError("impossible")

    bench.sink.listen([])
    broken: Callable[..., None] = fail
    bench.sink = StreamSink(
        bench.world.broker.account("$G"), bench.store, "S", bench.commit, broken,
        lambda first, last: None, in_memory=False,
    )  # fmt: skip
    bench.sink.listen(["s.>"])
    said = bench.publish("Nats-TTL: 1")
    assert [str(error) for error in bench.commit.errors] == ["impossible"]
    assert error_codes(bodies(said + bench.publish())) == [10077, 10077]


def test_subjects_come_and_go() -> None:
    bench = Bench()
    bench.sink.listen(["s.b", "t.*"])
    assert bench.sink.subjects == ["s.b", "t.*"]
    bench.publish(subject="s.a")
    bench.publish(subject="t.x")
    assert bench.store.messages == 1
    bench.sink.close()
    bench.publish(subject="t.x")
    assert bench.store.messages == 1
    assert bench.durable() == []


class Disk:
    """A data directory for LocalCommit that fails when told to."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.commits = 0
        self.settled_ticket = 0
        self.is_busy = self.congested = False

    def commit(self) -> int:
        self.commits += 1
        if self.failure:
            raise OSError(self.failure)
        return self.commits

    def poll(self) -> int:
        return self.commits

    def sync(self) -> None:
        pass


@pytest.mark.feature("9.010")
def test_a_disk_that_fails_stops_the_streams_on_it_and_says_so() -> None:
    world, lines = World(), list[str]()
    disk = Disk()
    commit = LocalCommit(world.broker.turn, disk, lambda level, text: lines.append(text))
    sinks = [
        StreamSink(
            world.broker.account("$G"), open_memory_store(StoreLimits()), name, commit,
            lambda *args: None, lambda first, last: None, in_memory=in_memory,
        )
        for name, in_memory in (("D", False), ("M", True))
    ]  # fmt: skip
    for sink, subject in zip(sinks, ("d", "m"), strict=True):
        commit.adopt(sink)
        sink.listen([subject])
    client = world.client(MODERN)
    client.say(b"SUB r 1\r\n")
    assert client.say(b"PUB m r 1\r\nx\r\n").endswith(b'{"stream":"M","seq":1}\r\n')
    disk.failure = "input/output error"
    commit.mark()
    world.broker.turn.run()
    assert commit.failure == "input/output error"
    assert lines == ["JetStream stores nothing any more: input/output error"]
    assert sinks[0].down == "input/output error"
    assert sinks[1].down is None
    assert client.say(b"PUB m r 1\r\nx\r\n").endswith(b'{"stream":"M","seq":2}\r\n')


def test_what_lasts_is_said_when_it_does() -> None:
    world, disk, heard = World(), Disk(), list[str | None]()
    commit = LocalCommit(world.broker.turn, disk)
    commit.when_settled(heard.append)
    world.broker.turn.run()
    assert (disk.commits, heard) == (1, [])
    commit.when_settled(heard.append)
    world.broker.turn.run()
    disk.settled_ticket = 1
    commit.completed()
    assert heard == [None]
    disk.failure = "no space left"
    commit.completed()
    assert heard == [None, "no space left"]
    commit.when_settled(heard.append)
    world.broker.turn.run()
    assert heard == [None, "no space left", "no space left"]


def test_trouble_of_one_stream_does_not_keep_the_answers_of_another() -> None:
    world, lines = World(), list[str]()
    commit = LocalCommit(world.broker.turn, None, lambda level, text: lines.append(text))

    def fail(first: int, last: int) -> None:
        raise RuntimeError("a consumer's mistake")

    for name, on_stored in (("A", fail), ("B", lambda first, last: None)):
        sink = StreamSink(
            world.broker.account("$G"), open_memory_store(StoreLimits()), name, commit,
            lambda *args: None, on_stored, in_memory=True,
        )  # fmt: skip
        commit.adopt(sink)
        sink.listen([name.lower()])
    client = world.client(MODERN)
    client.say(b"SUB r 1\r\n")
    answer = client.say(b"PUB a r 1\r\nx\r\nPUB b r 1\r\nx\r\n")
    assert answer.endswith(b'{"stream":"B","seq":1}\r\n')
    assert "a consumer's mistake" in lines[0]


def test_a_time_to_live_is_taken_as_it_is_once_it_was_checked() -> None:
    bench = Bench(StoreLimits(allow_ttl=True))
    bench.publish("Nats-TTL: 5s")
    assert (len(bench.handed), bench.store.messages) == (1, 0)
    bench.sink.ttls[b"5s"] = 5_000_000_000
    bench.publish("Nats-TTL: 5s", "Nats-Msg-Id: a")
    assert (len(bench.handed), bench.store.messages) == (1, 1)
    stored = bench.store.load(1)
    assert stored is not None
    assert bench.store.next_expiry_ns() == stored.ts_ns + 5_000_000_000
    bench.publish("Nats-TTL: 6s")
    bench.publish("Nats-TTL: 5s", "Nats-Rollup: sub")
    assert (len(bench.handed), bench.store.messages) == (3, 1)


def test_a_turn_that_nobody_waits_for_shares_a_sync_with_those_behind_it() -> None:
    world, disk, asked = World(), Disk(), list[tuple[float, Callable[[], None]]]()
    commit = LocalCommit(world.broker.turn, disk)
    commit.ask_later = lambda delay_s, then: asked.append((delay_s, then))
    sink = StreamSink(
        world.broker.account("$G"), open_memory_store(StoreLimits()), "D", commit,
        lambda *args: None, lambda first, last: None, in_memory=False,
    )  # fmt: skip
    sink.listen(["d"])
    client = world.client(MODERN)
    for _ in range(3):
        client.say(b"PUB d 1\r\nx\r\n")
    assert disk.commits == 0
    ((delay_s, run),) = asked
    assert delay_s < 0.01
    run()
    assert disk.commits == 1
    client.say(b"PUB d 1\r\nx\r\n")
    assert (len(asked), disk.commits) == (2, 1)
    client.say(b"PUB d r 1\r\nx\r\n")
    assert disk.commits == 2
    sink.watched = True
    client.say(b"PUB d 1\r\nx\r\n")
    assert disk.commits == 3
    commit.mark()
    world.broker.turn.run()
    assert disk.commits == 4


def test_what_is_written_while_the_disk_works_goes_to_it_as_one() -> None:
    world, disk, heard = World(), Disk(), list[str | None]()
    commit = LocalCommit(world.broker.turn, disk)
    sink = StreamSink(
        world.broker.account("$G"), open_memory_store(StoreLimits()), "D", commit,
        lambda *args: None, lambda first, last: None, in_memory=False,
    )  # fmt: skip
    sink.listen(["d"])
    client = world.client(MODERN)
    client.say(b"PUB d r 1\r\nx\r\n")
    assert disk.commits == 1
    disk.is_busy = True
    client.say(b"PUB d r 1\r\nx\r\n")
    commit.when_settled(heard.append)
    client.say(b"PUB d r 1\r\nx\r\n")
    commit.completed()  # of something else
    assert disk.commits == 1
    disk.is_busy = False
    commit.completed()
    assert disk.commits == 2
    disk.settled_ticket = 1
    commit.completed()
    assert heard == []
    disk.settled_ticket = 2
    commit.completed()
    assert (disk.commits, heard) == (2, [None])


def test_a_batch_that_waits_for_the_disk_is_told_when_the_disk_fails() -> None:
    world, disk, heard = World(), Disk(), list[str | None]()
    commit = LocalCommit(world.broker.turn, disk)
    disk.is_busy = True
    commit.when_settled(heard.append)
    world.broker.turn.run()
    assert (disk.commits, heard) == (0, [])
    disk.failure = "no space left"
    commit.completed()
    assert (commit.failure, heard) == ("no space left", ["no space left"])
