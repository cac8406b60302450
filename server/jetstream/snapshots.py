"""Snapshots: a stream with its consumers as one archive, sent in chunks that the receiver answers.

What is sent is what was durable when the request came; publishes go on meanwhile and are not part
of it. At most a window of chunks is unanswered at a time, and one turn makes only a few, so that a
big stream delays nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from config.limits import SECOND_NS
from server.jetstream.api.answers import stream_state
from server.jetstream.archive import END, MAGIC, Entry, encoded
from server.jetstream.consumer_config import shown_config
from server.jetstream.gojson import encode
from server.wire.s2 import compressed

if TYPE_CHECKING:
    from server.jetstream.advisory import Asker
    from server.jetstream.consumer import Consumer
    from server.jetstream.engine import Engine
    from server.jetstream.stream import Stream

SEND_PHASE: Final = 5
SNAPSHOTS_MAX: Final = 64
CHUNKS_A_TURN: Final = 4
FRAME_BYTES: Final = 256 << 10
CHUNK_BYTES: Final = 128 << 10
WINDOW_BYTES: Final = 8 << 20
INTEREST_WAIT_NS: Final = 2 * SECOND_NS
ACK_WAIT_NS: Final = 5 * SECOND_NS
LOOK_NS: Final = SECOND_NS // 10
DONE: Final = b"NATS/1.0 204\r\n\r\n"
NO_INTEREST: Final = (b"NATS/1.0 408 No Interest\r\n\r\n", "no interest")
NO_ACKS: Final = (b"NATS/1.0 408 No Flow Response\r\n\r\n", "no flow response")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the receiver asked for, within its bounds."""

    subject: str
    with_consumers: bool
    chunk_bytes: int
    chunks_unanswered_max: int


def wanted(subject: str, with_consumers: bool, chunk_bytes: int, window_bytes: int) -> Wanted:
    chunk = min(max(1 << 10, chunk_bytes or CHUNK_BYTES), 1 << 20)
    window = max(min(max(1 << 10, window_bytes or WINDOW_BYTES), 32 << 20), chunk)
    return Wanted(subject, with_consumers, chunk, window // chunk)


class StreamGoneError(Exception):
    """The stream was deleted while it was read."""


def contents(stream: Stream, now_ns: int, with_consumers: bool) -> Iterator[bytes]:
    """The archive in pieces, each of one entry."""
    kept = [c for c in stream.consumers.values() if with_consumers and not c.config.direct]
    state = stream_state(stream, details=False) | {"consumer_count": len(kept)}
    last = state["last_seq"]
    yield MAGIC + encoded(Entry(b"state.json", now_ns, 0, b"", encode(state)))
    for text in [(c.name, encode(consumer_state(c, last))) for c in kept]:
        yield encoded(Entry(b"consumers/" + text[0].encode(), now_ns, 0, b"", text[1]))
    seq = 0
    while not stream.closed:
        message = stream.store.load_next(seq + 1)
        if message is None or message.seq > last:
            yield END
            return
        seq = message.seq
        subject = message.subject.encode("utf-8", "surrogateescape")
        yield encoded(Entry(subject, message.ts_ns, seq, message.headers, message.payload))
    raise StreamGoneError("stream closed")


def consumer_state(consumer: Consumer, last_seq: int) -> dict[str, object]:
    """What is pending is delivered again by whoever restores it."""
    info = consumer.info()
    floor = {
        "consumer_seq": info.ack_floor.consumer_seq,
        "stream_seq": min(info.ack_floor.stream_seq, last_seq),
    }
    delivered = {
        "consumer_seq": info.delivered.consumer_seq,
        "stream_seq": min(info.delivered.stream_seq, last_seq),
    }
    state = {"delivered": floor if info.num_ack_pending else delivered, "ack_floor": floor}
    return {"config": shown_config(consumer.config), "state": state}


class Snapshot:
    """One that is being sent."""

    def __init__(self, snapshots: Snapshots, stream: Stream, asked: Wanted, asker: Asker) -> None:
        engine = stream.engine
        self.snapshots = snapshots
        self.stream = stream
        self.asked = asked
        self.asker = asker
        self.armed_ns: int | None = None
        self.closed = False
        self.started_ns = engine.now_ns()
        self._contents = contents(stream, self.started_ns, asked.with_consumers)
        self._frames = bytearray()
        self._is_read = False
        self._slots = asked.chunks_unanswered_max
        self._sent = 0
        self._heard_ns = self.started_ns
        self._had_interest = False
        self._acks = f"$JS.SNAPSHOT.ACK.{stream.name}.{engine.advisories.event_id()}"
        self._sub = stream.account.subscribe(self._acks + ".>", self.on_ack)
        engine.timers.arm(self, self.started_ns + LOOK_NS)

    def on_ack(self, subject: str, reply: str, headers: bytes, body: bytes, _: str) -> None:
        if self._slots < self.asked.chunks_unanswered_max:
            self._slots += 1
        self._heard_ns = self.stream.engine.now_ns()
        self.snapshots.mark(self)

    def run(self) -> None:
        """A turn's share."""
        if self.closed or not self._may_send():
            return
        try:
            for _ in range(CHUNKS_A_TURN):
                if not self._slots:
                    return
                if not self._send_chunk():
                    self.end(DONE if self._sent else b"")
                    return
        except (StreamGoneError, OSError) as error:
            self.end(b"NATS/1.0 500 %b\r\n\r\n" % str(error).encode(), str(error))
            return
        self.snapshots.mark(self)

    def _may_send(self) -> bool:
        """Whether somebody listens; at first one may still come.

        A wildcard is no sign: clients make inboxes under one, and subscribe a moment later.
        """
        if self.stream.account.has_literal_interest(self.asked.subject):
            self._had_interest = True
            return True
        if self._had_interest:
            self.end(*NO_INTEREST)
            return False
        return self.stream.engine.now_ns() - self.started_ns >= INTEREST_WAIT_NS

    def _send_chunk(self) -> bool:
        """Whether a whole chunk went out, and more may follow."""
        size, account = self.asked.chunk_bytes, self.stream.account
        while len(self._frames) < size and not self._is_read:
            self._read_frame()
        chunk = bytes(self._frames[:size])
        del self._frames[:size]
        if len(chunk) < size:
            if chunk:
                account.publish(self.asked.subject, payload=chunk)
            return False
        self._sent += 1
        self._slots -= 1
        self._heard_ns = self.stream.engine.now_ns()
        reply = f"{self._acks}.{size}.{self._sent}"
        account.publish(self.asked.subject, reply, payload=chunk)
        return True

    def _read_frame(self) -> None:
        parts, size = [], 0
        for part in self._contents:
            parts.append(part)
            size += len(part)
            if size >= FRAME_BYTES:
                break
        else:
            self._is_read = True
        if parts:
            self._frames += compressed(b"".join(parts))

    def tick(self, now_ns: int) -> None:
        if self.closed:
            return
        self.snapshots.mark(self)
        if not self._slots and now_ns - self._heard_ns >= ACK_WAIT_NS:
            self.end(*NO_ACKS)
            return
        self.stream.engine.timers.arm(self, now_ns + LOOK_NS)

    def end(self, status: bytes, why: str = "") -> None:
        """The last, empty message; `why` it is not whole."""
        self.stop()
        self.stream.account.publish(self.asked.subject, headers=status)
        engine = self.stream.engine
        engine.advisories.snapshot_complete(self.stream, self.started_ns, self.asker, why)
        if why:
            where = f"{self.stream.account.name} > {self.stream.name}"
            engine.warn(f"Snapshot for stream '{where}' failed: {why}")

    def stop(self) -> None:
        self.closed = True
        self.armed_ns = None
        self._sub.unsubscribe()
        self.snapshots.forget(self)


class Snapshots:
    """Those of one server that are on their way."""

    def __init__(self, engine: Engine) -> None:
        self._turn = engine.broker.turn
        self._phase = self._turn.phase(SEND_PHASE, self.run)
        self._running: set[Snapshot] = set()
        self._dirty: dict[Snapshot, None] = {}

    @property
    def is_full(self) -> bool:
        return len(self._running) >= SNAPSHOTS_MAX

    def start(self, stream: Stream, asked: Wanted, asker: Asker) -> None:
        snapshot = Snapshot(self, stream, asked, asker)
        self._running.add(snapshot)
        self.mark(snapshot)

    def mark(self, snapshot: Snapshot) -> None:
        self._dirty[snapshot] = None
        self._phase.mark()

    def forget(self, snapshot: Snapshot) -> None:
        self._running.discard(snapshot)
        self._dirty.pop(snapshot, None)

    def run(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for snapshot in dirty:
            snapshot.run()

    def close(self) -> None:
        for snapshot in list(self._running):
            snapshot.stop()
        self._turn.forget(self._phase)
