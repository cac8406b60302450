"""A stream's ingest: the sink that hears its subjects, with what it needs around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from server.core._subjectplan import SubjectPlan
from server.jetstream._commit import LocalCommit
from server.jetstream._feed import StreamFeed
from server.jetstream._ingest import StreamSink
from server.jetstream._republish import Republisher
from server.jetstream.batchlimits import BatchCounts, BatchLimits
from server.jetstream.direct import DirectGet
from server.jetstream.publish import Publisher
from server.jetstream.stream import Stream
from server.jetstream.timers import Timers
from server.jetstream.usage import Usages
from storage._store import StreamStore

if TYPE_CHECKING:
    from server.core.msgtrace import MessageTrace

ANSWER_BYTES_MAX_LEAST = 64 << 20
"""Answers that wait for the disk may always take this much; they are more than what is stored."""
IDS_END_LATE_NS = 1_000_000_000
"""Ids beyond their window count no more; their memory follows with those of the next second."""


class Ingests:
    """Opens the ingests of one server; what they share."""

    def __init__(self, commit: LocalCommit, max_payload: int) -> None:
        self.commit = commit
        self.max_payload = max_payload
        self.timers = Timers()
        self.batches = BatchCounts()
        self.usages = Usages()

    def open(self, stream: Stream) -> StreamIngest:
        return StreamIngest(stream, self)


class StreamIngest:
    """Keeps the sink's rules equal to the stream's configuration."""

    def __init__(self, stream: Stream, shared: Ingests) -> None:
        options = stream.engine.options
        self.stream = stream
        self.shared = shared
        self.armed_ns: int | None = None
        self._has_feed = False
        limits = BatchLimits.of(options)
        self.publisher = Publisher(stream, limits, shared.batches, shared.max_payload)
        assert isinstance(stream.store, StreamStore)
        self.sink = StreamSink(
            stream.account,
            stream.store,
            stream.name,
            shared.commit,
            self.publish,
            self.on_stored,
            in_memory=stream.config.storage == "memory",
            domain=stream.engine.domain,
            window_ns=stream.config.duplicate_window,
        )
        self.sink.on_rollup = stream.roll_up
        self.sink.on_first_id = self.arm
        self.publisher.attach(self.sink)
        shared.commit.adopt(self.sink)
        self.sink.waiting_messages_max = options.max_buffered_messages or 100_000
        self.sink.waiting_bytes_max = options.max_buffered_bytes or 128 << 20
        self.sink.answer_bytes_max = max(self.sink.waiting_bytes_max, ANSWER_BYTES_MAX_LEAST)
        self.sink.listeners = stream.interest
        self.sink.usage = shared.usages.of(stream)
        self.sink.removed()
        self.direct = DirectGet(stream, self.sink)
        self.configure()
        self.publisher.recover()
        self.arm()

    # What the stream asks

    def subscribe(self, subjects: Sequence[str]) -> None:
        self.sink.listen(subjects)
        self.direct.configure()

    def configure(self) -> None:
        config, sink = self.stream.config, self.sink
        sink.no_ack = config.no_ack
        sink.sealed = config.sealed
        sink.message_bytes_max = config.max_msg_size
        sink.skip_unwanted = config.retention == "interest"
        sink.window.set_window(config.duplicate_window)
        sink.all_unusual = config.allow_msg_counter or config.mirror is not None
        sink.allow_rollup = (
            config.allow_rollup_hdrs
            and not config.deny_purge
            and not config.allow_msg_schedules
            and not self.publisher.schedules.by_subject
        )
        transform, republish = self.stream.transform, self.stream.republish
        sink.renames = None if transform is None else SubjectPlan(transform)
        sink.copies = None
        if republish is not None and config.republish is not None:
            headers_only = config.republish.headers_only
            sink.copies = Republisher(republish, self.stream.name, headers_only)
        sink.ttls.clear()
        self.publisher.drop_batches()
        self.configure_told()
        self.direct.configure()
        self.arm()

    def feed(self, feed: StreamFeed) -> None:
        feed.attach(self.sink)
        self._has_feed = True
        self.configure_told()

    def configure_told(self) -> None:
        """Whether what is stored may have to be delivered, or will be due some day."""
        config = self.stream.config
        self.sink.told = self._has_feed or config.max_age > 0 or config.allow_msg_ttl
        self.sink.watched = self._has_feed or config.mirror is not None or bool(config.sources)

    @property
    def shown_seq(self) -> int:
        return self.sink.shown_seq

    @shown_seq.setter
    def shown_seq(self, seq: int) -> None:
        self.sink.shown_seq = seq

    def removed(self) -> None:
        """Messages were deleted or purged."""
        self.sink.removed()

    def close(self) -> None:
        self.armed_ns = None
        self.direct.close()
        self.publisher.close()
        self.sink.close()
        self.shared.commit.forget(self.sink)

    # What happens

    def publish(
        self,
        subject: bytes,
        reply: bytes,
        headers: bytes,
        payload: bytes,
        trace: MessageTrace | None = None,
    ) -> None:
        if trace is None:
            self.publisher(subject, reply, headers, payload)
        else:
            self.publisher.traced(trace, subject, reply, headers, payload)
        self.arm()

    def on_stored(self, first: int, last: int) -> None:
        self.stream.on_stored(first, last)
        if self.armed_ns is None or self.sink.ttls:
            self.arm()

    def arm(self) -> None:
        ids_end_ns = self.sink.window.next_expiry_ns()
        if ids_end_ns is not None:
            ids_end_ns += IDS_END_LATE_NS
        for at_ns in (self.stream.store.next_expiry_ns(), self.publisher.next_ns(), ids_end_ns):
            if at_ns is not None:
                self.shared.timers.arm(self, at_ns)

    def tick(self, now_ns: int) -> None:
        try:
            self.run_due(now_ns)
        except Exception as error:
            self.shared.commit.broken(self.sink, error)

    def run_due(self, now_ns: int) -> None:
        store = self.stream.store
        expired = store.expire(now_ns)
        for subject in expired.markers:
            self.publisher.keep_marker(subject)
        if expired.messages or expired.markers:
            self.removed()
        self.sink.window.expire(now_ns)
        self.publisher.tick(now_ns)
        # What is left of each is due still.
        self.arm()
