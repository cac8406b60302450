"""The publishes that need more than the ingest does in C.

`StreamSink` calls a `Publisher` inside its delivery, so that messages keep their order: rollup,
time to live, counters, schedules, batches, subject transforms, republish. Its answers go through
the sink, which holds each back until what it tells of is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from traceback import format_exc
from typing import TYPE_CHECKING, Final

from server.core.msgtrace import DESTINATION, DISABLED
from server.jetstream import answers, errors, headers, schedule, ttl
from server.jetstream._lookback import lives, remember_ids, scheduling
from server.jetstream.apierror import ApiError
from server.jetstream.atomic import ATOMIC_ID, AtomicBatches
from server.jetstream.checks import MESSAGE_ID, REQUEST_INFO, ROLLUP, TTL, Checks, Message
from server.jetstream.fastbatch import FastBatches, batch_reply
from server.jetstream.schedule import Schedules
from storage._age import marker_headers
from storage.ports import StoredMessage, StoreError

if TYPE_CHECKING:
    from server.core.msgtrace import MessageTrace
    from server.jetstream._ingest import StreamSink
    from server.jetstream.batchlimits import BatchCounts, BatchLimits
    from server.jetstream.stream import Stream
    from storage._store import StreamStore

STREAM_FAILED: Final = "the stream failed"
FIRED_AT_ONCE: Final = 128
"""Schedules, some milliseconds of work; the rest follows in the next tick."""


class Publisher:
    """What hears the unusual messages of one stream."""

    def __init__(
        self, stream: Stream, limits: BatchLimits, counts: BatchCounts, max_payload: int
    ) -> None:
        self.stream = stream
        self.limits = limits
        self.max_payload = max_payload
        self.domain = stream.engine.domain
        self.schedules = Schedules(self.is_there)
        self.atomic = AtomicBatches(self, limits, counts)
        self.fast = FastBatches(self, limits, counts)
        self.trace: MessageTrace | None = None
        self.trace_error = ""
        self.has_changed_store = False
        """Whether the message at hand has begun to be stored."""
        self.sink: StreamSink
        self.store: StreamStore
        self.checks: Checks

    def attach(self, sink: StreamSink) -> None:
        assert sink.store is not None
        self.sink, self.store = sink, sink.store
        self.checks = Checks(self.stream, sink, self.max_payload)

    def __call__(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        """A message as it was published. A fault of ours that changed nothing costs only itself."""
        self.has_changed_store = False
        try:
            self.hear(subject, reply, block, payload)
        except Exception as error:
            if self.has_changed_store:
                raise
            name = subject.decode("utf-8", "backslashreplace")
            self.stream.engine.warn(
                f"A message on {name!r} for stream '{self.stream.account.name} > "
                f"{self.stream.name}' is refused: {error!r}\n{format_exc()}".rstrip()
            )
            self.refuse(reply, errors.STREAM_STORE_FAILED(err="internal error"))

    def hear(self, subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        block = headers.without_status(block)
        name, self.trace_error = subject.decode("utf-8", "surrogateescape"), ""
        message = Message(name, reply, block, payload)
        if self.trace is not None and self.trace.only:
            self.answered(message, self.check_alone)
        elif self.fast.hears(name, reply, block, payload):
            self.trace_batched(message)
        elif headers.value(block, ATOMIC_ID):
            self.answered(message, self.atomic.take)
            self.trace_batched(message)
        else:
            self.answered(message, self.plain)

    def traced(
        self, trace: MessageTrace, subject: bytes, reply: bytes, block: bytes, payload: bytes
    ) -> None:
        """A message whose way is noted. The note leaves when what it tells of is durable."""
        settled = self.stream.engine.when_settled
        trace.at_stream(self.stream.name)
        if not trace.only:
            # What is delivered later is not to be traced.
            block = headers.replaced(headers.without_status(block), DESTINATION, DISABLED)
        self.trace, self.trace_error = trace, STREAM_FAILED
        try:
            self(subject, reply, block, payload)
        finally:
            self.trace, error = None, self.trace_error
            settled(lambda failure: trace.left_stream(error or failure or ""))

    def trace_taken(self, message: Message) -> bool:
        """The checks are over; whether the message is to be stored."""
        if self.trace is None:
            return True
        self.trace.taken_by_stream(message.subject, not self.wanted(message.subject))
        return not self.trace.only

    def trace_batched(self, message: Message) -> None:
        if self.trace is not None and not self.trace_error:
            self.trace.taken_by_stream(message.subject, no_interest=False)

    def check_alone(self, message: Message) -> None:
        """What is only to be traced is no part of a batch, but passes the checks of one."""
        if batch_reply(message.reply, message.headers):
            self.fast.check_message(message)
        elif headers.value(message.headers, ATOMIC_ID):
            self.atomic.check_message(message)
        self.plain(message)

    def answered(self, message: Message, step: Callable[[Message], None]) -> None:
        try:
            step(message)
        except ApiError as error:
            self.refuse(message.reply, error)

    def refuse(self, reply: bytes, error: ApiError) -> None:
        self.trace_error = error.cause
        if not self.stream.config.no_ack:
            self.sink.answer(reply, answers.refusal(self.stream.name, error))

    def transformed(self, subject: str) -> str:
        """The subject under which the stream stores; what does not match stays as it is."""
        transform = self.stream.transform
        found = transform.apply(subject) if transform is not None else None
        return subject if found is None else found

    def plain(self, message: Message) -> None:
        message.subject = self.transformed(message.subject)
        checks = self.checks
        checks.record_size(message)
        checks.sealed()
        message.headers = headers.removed(message.headers, REQUEST_INFO)
        if message.headers:
            checks.increment(message)
            checks.expected_stream(message)
            checks.ttl_allowed(message)
            checks.expected_subject_seq(message)
            checks.expected_last_seq(message)
            checks.schedule(message)
            checks.scheduler(message)
            checks.source(message)
            duplicate = checks.duplicate_of(message)
            if duplicate:
                self.trace_error = "msgid is duplicate"
                self.sink.ack(message.reply, duplicate, b',"duplicate": true}')
                return
            checks.expected_last_id(message)
            checks.rollup(message)
        checks.counter(message)
        checks.message_size(message)
        checks.header_size(message)
        checks.server_room()
        if not self.trace_taken(message):
            return
        seq = self.keep(message)
        tail = answers.counter_tail(message.total) if message.total else b"}"
        self.sink.ack(message.reply, seq, tail)

    def keep(self, message: Message) -> int:
        """After the checks, if there is room: `store_checked`."""
        self.checks.server_room()
        if self.wanted(message.subject):
            self.checks.account_room(message)
        return self.store_checked(message)

    def store_checked(self, message: Message) -> int:
        """Store, carry out what the headers ask for, republish. The sequence."""
        if not self.wanted(message.subject):
            self.has_changed_store = True
            seq = self.sink.skip_message(message.message_id)
            self.after(message, keep=0)
            return seq
        self.checks.ttl(message)
        before = self.last_seq_for_republish(message.subject)
        self.has_changed_store = True
        try:
            seq = self.sink.store_message(
                headers.encoded(message.subject),
                message.headers,
                message.payload,
                ttl.ttl_ns(message.ttl_seconds),
                message.message_id,
                message.ts_ns,
            )
        except StoreError as error:
            raise errors.STREAM_STORE_FAILED(err=str(error)).because(str(error)) from None
        self.after(message, keep=1)
        self.note_schedule(message, seq)
        self.republish(message, seq, before)
        return seq

    def wanted(self, subject: str) -> bool:
        """Streams that keep messages for consumers only skip what none of them wants."""
        if not self.sink.skip_unwanted:
            return True
        name, interest = headers.encoded(subject), self.sink.interest
        return interest is not None and interest.interested(name)

    def after(self, message: Message, keep: int) -> None:
        """Rollup, and the schedule that this publish ends."""
        config, store = self.stream.config, self.stream.store
        if not config.allow_rollup_hdrs or config.deny_purge:
            return
        if message.rollup == "sub":
            store.purge(message.subject, keep=keep)
        elif message.rollup == "all":
            self.stream.roll_up(keep)
        if headers.value(message.headers, schedule.NEXT) == schedule.PURGE:
            ended = headers.text(message.headers, schedule.SCHEDULER)
            if ended:
                store.purge(ended)
                self.schedules.remove(ended)
        self.sink.removed()

    # Republish

    def last_seq_for_republish(self, subject: str) -> int:
        if self.sink.copies is None:
            return 0
        last = self.stream.store.load_last(subject)
        return last.seq if last is not None else 0

    def republish(self, message: Message, seq: int, before: int) -> None:
        """A copy for plain subscribers, when the message is durable."""
        if self.sink.copies is not None:
            self.sink.republish(
                headers.encoded(message.subject),
                message.headers,
                message.payload,
                seq,
                message.ts_ns,
                before,
            )

    # Delete markers

    def keep_marker(self, subject: str) -> None:
        """The subject's last message grew too old: say so in its place, as with any publish."""
        block = marker_headers(self.stream.config.subject_delete_marker_ttl)
        try:
            self.keep_own(Message(subject, b"", block, b""))
        except ApiError as error:
            self.stream.engine.warn(
                f"Stream '{self.stream.account.name} > {self.stream.name}' cannot take the delete "
                f"marker of {subject!r}: {error.description}"
            )

    # Schedules

    def note_schedule(self, message: Message, seq: int) -> None:
        if message.due is not None:
            self.schedules.put(message.subject, seq, message.due.at_ns)
        elif message.subject in self.schedules.by_subject and message.rollup == "sub":
            self.schedules.remove(message.subject)

    def is_there(self, seq: int) -> bool:
        return lives(self.store, seq)

    def fire_schedules(self, now_ns: int) -> None:
        """Publish what is due; a repeating schedule gets its next time."""
        for subject, due in self.schedules.take_due(now_ns, FIRED_AT_ONCE):
            stored = self.stream.store.load(due.seq)
            follow = self.next_due(stored, due.at_ns, now_ns)
            if stored is None or follow is None:
                self.schedules.remove(subject)
                continue
            message = self.scheduled_message(stored, follow)
            # As there: it is tried again at its next time, a one-shot schedule stays.
            with suppress(ApiError):
                self.keep_own(message)
            if follow.repeats and subject in self.schedules.by_subject:
                self.schedules.put(subject, due.seq, follow.at_ns)

    def next_due(
        self, stored: StoredMessage | None, at_ns: int, now_ns: int
    ) -> schedule.Due | None:
        if stored is None:
            return None
        try:
            return schedule.due_of(stored.headers, at_ns, now_ns)
        except ApiError:
            return None

    def scheduled_message(self, stored: StoredMessage, follow: schedule.Due) -> Message:
        """What a schedule publishes: its own content, or that of its source's last message."""
        own = stored.headers
        source = headers.text(own, schedule.SOURCE)
        content = (self.stream.store.load_last(source) if source else None) or stored
        block = headers.removed_prefix(content.headers, b"Nats-Schedule")
        block = headers.removed_prefix(block, b"Nats-Expected-")
        for name in (MESSAGE_ID, TTL, ROLLUP):
            block = headers.removed(block, name)
        block = headers.added(block, schedule.SCHEDULER, headers.encoded(stored.subject))
        block = headers.added(
            block, schedule.NEXT, follow.text.encode() if follow.repeats else schedule.PURGE
        )
        for name, wanted in ((TTL, schedule.TTL), (ROLLUP, schedule.ROLLUP)):
            text = headers.value(own, wanted)
            if text:
                block = headers.added(block, name, text)
        return Message(headers.text(own, schedule.TARGET), b"", block, content.payload)

    def keep_own(self, message: Message) -> None:
        """The server's own publish: the checks of who may are over."""
        message.subject = self.transformed(message.subject)
        checks = self.checks
        checks.record_size(message)
        checks.sealed()
        message.rollup = headers.text(message.headers, ROLLUP).lower()
        checks.message_size(message)
        checks.header_size(message)
        self.keep(message)

    # The start and the passing of time

    def recover(self) -> None:
        """The duplicate window and the schedules, from what the store has."""
        config, store = self.stream.config, self.stream.store
        last = store.load(self.sink.last_seq)
        if last is not None:
            self.sink.last_message_id = headers.value(last.headers, MESSAGE_ID) or b""
        if config.duplicate_window > 0:
            self.recover_window(self.sink.now_ns - config.duplicate_window)
        if config.allow_msg_schedules:
            self.recover_schedules()

    def recover_window(self, since_ns: int) -> None:
        remember_ids(self.store, self.sink.window, self.store.first_seq_from_time(since_ns))

    def recover_schedules(self) -> None:
        """The last message that a schedule published says when it fires next."""
        schedules, fired = scheduling(self.store)
        for seq in schedules:
            message = self.store.load(seq)
            if message is None:
                continue
            due = self.next_due(message, message.ts_ns, message.ts_ns)
            if due is not None:
                self.schedules.put(message.subject, seq, due.at_ns)
        for scheduler, seq in fired.items():
            known = self.schedules.by_subject.get(scheduler.decode("utf-8", "surrogateescape"))
            message = self.store.load(seq)
            if known is not None and known.seq < seq and message is not None:
                self.move_schedule(message)

    def move_schedule(self, message: StoredMessage) -> None:
        subject = headers.text(message.headers, schedule.SCHEDULER)
        text = headers.text(message.headers, schedule.NEXT)
        try:
            at_ns = schedule.parse(f"@at {text}", None, 0, 0).at_ns
        except ValueError:
            return
        self.schedules.put(subject, self.schedules.by_subject[subject].seq, at_ns)

    def next_ns(self) -> int | None:
        """When `tick` is needed next."""
        times = [self.atomic.next_ns(), self.fast.next_ns(), self.schedules.next_ns()]
        return min((each for each in times if each is not None), default=None)

    def tick(self, now_ns: int) -> None:
        self.atomic.expire(now_ns)
        self.fast.expire(now_ns)
        if self.schedules.by_subject:
            self.fire_schedules(now_ns)

    def drop_batches(self) -> None:
        """Open batches of a kind that is not allowed any more; nobody is told, as there."""
        if not self.stream.config.allow_atomic:
            self.atomic.clear()
        if not self.stream.config.allow_batched:
            self.fast.clear()

    def close(self) -> None:
        self.atomic.clear()
        self.fast.clear()
