"""The checks of a publish whose headers or stream need more than the ingest does in C.

Each check is a method that raises the ApiError of the refusal; `publish` and `batches` call them in
the reference's two orders. All look at what was accepted, durable or not. In a batch they look at
what the batch did before as well (`Staged`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from server.core.subject import is_valid_literal, overlaps
from server.jetstream import counters, errors, headers, schedule
from server.jetstream.apierror import ApiError
from server.jetstream.schedule import Due
from server.jetstream.ttl import TtlError, ttl_ns, ttl_seconds
from storage.ports import StoredMessage

if TYPE_CHECKING:
    from server.jetstream._ingest import StreamSink
    from server.jetstream.stream import Stream

MESSAGE_ID: Final = b"Nats-Msg-Id"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
EXPECTED_LAST_SEQ: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_SUBJECT_SEQ: Final = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_ID: Final = b"Nats-Expected-Last-Msg-Id"
ROLLUP: Final = b"Nats-Rollup"
TTL: Final = b"Nats-TTL"
INCREMENT: Final = b"Nats-Incr"
STREAM_SOURCE: Final = b"Nats-Stream-Source"
REQUEST_INFO: Final = b"Nats-Request-Info"
HEADER_BYTES_MAX: Final = 65_535
RECORD_BYTES_MAX: Final = 32 * 1024 * 1024
SUBJECT_BYTES_MAX: Final = 65_534
TTLS_KNOWN_MAX: Final = 256
"""Texts of times to live that the ingest takes itself once they were seen."""
TOO_LARGE: Final = "maximum payload exceeded"
NO_TTL: Final = "message TTL disabled"
NOT_COMBINED_WITH_INCREMENT: Final = (
    ROLLUP,
    EXPECTED_STREAM,
    EXPECTED_LAST_ID,
    EXPECTED_SUBJECT,
    EXPECTED_LAST_SEQ,
    EXPECTED_SUBJECT_SEQ,
)


@dataclass(slots=True)
class Message:
    """A published message on its way into the stream."""

    subject: str
    reply: bytes
    headers: bytes
    payload: bytes
    ttl_seconds: int = 0
    increment: Decimal | None = None
    total: str = ""
    rollup: str = ""
    due: Due | None = None
    ts_ns: int = 0
    """When the origin of a mirror stored it; 0: it is new."""

    @property
    def message_id(self) -> bytes:
        return headers.value(self.headers, MESSAGE_ID) or b""

    @property
    def size(self) -> int:
        return len(self.headers) + len(self.payload)


@dataclass(slots=True)
class Staged:
    """What earlier messages of a batch do when it is committed."""

    message_ids: set[bytes] = field(default_factory=set)
    totals: dict[str, Decimal] = field(default_factory=dict)
    schedules: dict[str, bool] = field(default_factory=dict)
    """Subjects that were written, and whether by a schedule at last."""
    counts: dict[str, int] = field(default_factory=dict)
    messages: int = 0
    bytes: int = 0


def expected_number(text: bytes) -> int:
    """As the reference reads it: what is no number is the highest one."""
    return headers.wrapped_number(text) % 2**64


def quoted(text: str) -> str:
    """A text as Go's %q shows it, for the few characters that occur."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def rollup_failed(why: str) -> ApiError:
    return errors.STREAM_ROLLUP_FAILED(err=why).because(why)


class Checks:
    """The checks of one stream."""

    def __init__(self, stream: Stream, sink: StreamSink, max_payload: int) -> None:
        self.stream = stream
        self.sink = sink
        self.max_payload = max_payload

    # Sizes and limits

    def stored_size(self, message: Message) -> int:
        subject_bytes = len(headers.encoded(message.subject))
        if self.sink.in_memory:
            return subject_bytes + message.size + 16
        return 30 + subject_bytes + message.size + (4 if message.headers else 0)

    def record_size(self, message: Message) -> None:
        if self.sink.down is not None:
            raise errors.STREAM_STORE_FAILED(err=self.sink.down)
        if not self.sink.in_memory and self.stored_size(message) > RECORD_BYTES_MAX:
            raise errors.STREAM_STORE_FAILED(err="message too large").because("message to large")
        if len(headers.encoded(message.subject)) > SUBJECT_BYTES_MAX:
            raise errors.STREAM_STORE_FAILED(err="subject is too long")

    def sealed(self) -> None:
        if self.stream.config.sealed:
            raise errors.STREAM_SEALED()

    def message_size(self, message: Message) -> None:
        if 0 <= self.stream.config.max_msg_size < message.size:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM().because(TOO_LARGE)

    def header_size(self, message: Message) -> None:
        if len(message.headers) > HEADER_BYTES_MAX:
            raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM().because(TOO_LARGE)

    def server_room(self) -> None:
        usage = self.sink.usage
        server = usage.parent if usage is not None else None
        if server is not None and 0 <= server.max < server.used:
            raise errors.INSUFFICIENT_RESOURCES()

    def account_room(self, message: Message) -> None:
        self.account_room_for(self.stored_size(message))

    def account_room_for(self, size_bytes: int) -> None:
        usage = self.sink.usage
        if usage is not None and 0 <= usage.max < usage.used + size_bytes:
            raise errors.ACCOUNT_RESOURCES_EXCEEDED()

    # Headers, in the plain order

    def increment(self, message: Message) -> None:
        """`Nats-Incr`: on counter streams only, without payload and without other conditions."""
        text = headers.text(message.headers, INCREMENT)
        if not text:
            return
        message.increment = counters.increment(text)
        if message.increment is None:
            raise errors.MESSAGE_INCR_INVALID()
        if not self.stream.config.allow_msg_counter:
            raise errors.MESSAGE_INCR_DISABLED()
        if message.payload:
            raise errors.MESSAGE_INCR_PAYLOAD()
        if any(headers.value(message.headers, name) for name in NOT_COMBINED_WITH_INCREMENT):
            raise errors.MESSAGE_INCR_INVALID()

    def expected_stream(self, message: Message) -> None:
        name = headers.text(message.headers, EXPECTED_STREAM)
        if name and name != self.stream.name:
            raise errors.STREAM_NOT_MATCH().because("expected stream does not match")

    def ttl_allowed(self, message: Message, strict: bool = False) -> None:
        """One that cannot be read is refused later in a plain publish, at once in a batch."""
        text = headers.value(message.headers, TTL) or b""
        try:
            wanted = ttl_seconds(text)
        except TtlError:
            if not strict:
                return
            raise (
                errors.MESSAGE_TTL_INVALID()
                if self.stream.config.allow_msg_ttl
                else errors.MESSAGE_TTL_DISABLED()
            ) from None
        if wanted and not self.stream.config.allow_msg_ttl:
            raise errors.MESSAGE_TTL_DISABLED().because(NO_TTL)

    def expected_subject_seq(self, message: Message, staged: Staged | None = None) -> None:
        text = headers.value(message.headers, EXPECTED_SUBJECT_SEQ)
        override = headers.text(message.headers, EXPECTED_SUBJECT)
        if not text:
            if override:
                raise errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID()
            return
        subject = override or message.subject
        if staged is not None and subject in staged.schedules:
            raise errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT()
        last = self.last(subject)
        found = last.seq if last is not None else 0
        wanted = expected_number(text)
        if found != wanted:
            raise errors.STREAM_WRONG_LAST_SEQUENCE(seq=found).because(
                f"last sequence by subject mismatch: {wanted} vs {found}"
            )

    def expected_last_seq(self, message: Message, staged: Staged | None = None) -> None:
        text = headers.value(message.headers, EXPECTED_LAST_SEQ)
        if not text:
            return
        last = self.sink.last_seq + (staged.messages if staged is not None else 0)
        wanted = expected_number(text)
        if wanted != last:
            raise errors.STREAM_WRONG_LAST_SEQUENCE(seq=last).because(
                f"last sequence mismatch: {wanted} vs {last}"
            )
        if staged is not None and staged.messages:
            raise errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT()

    def last(self, subject: str) -> StoredMessage | None:
        return self.stream.store.load_last(subject)

    def schedule(self, message: Message) -> None:
        """`Nats-Schedule` and what goes with it; a schedule replaces the one of its subject."""
        config, block = self.stream.config, message.headers
        now_ns = self.sink.now_ns
        try:
            message.due = schedule.due_of(block, now_ns, now_ns)
        except ApiError:
            if not config.allow_msg_schedules:
                raise errors.MESSAGE_SCHEDULES_DISABLED() from None
            raise
        if message.due is None:
            return
        if not config.allow_msg_schedules:
            raise errors.MESSAGE_SCHEDULES_DISABLED()
        if schedule.bad_ttl(block):
            raise errors.MESSAGE_SCHEDULES_TTL_INVALID()
        if headers.text(block, schedule.ROLLUP) not in ("", "sub"):
            raise errors.MESSAGE_SCHEDULES_ROLLUP_INVALID()
        if headers.value(block, schedule.TTL) and not config.allow_msg_ttl:
            raise errors.MESSAGE_TTL_DISABLED().because(NO_TTL)
        self.schedule_subjects(message)
        rollup = headers.text(block, ROLLUP).lower()
        if not rollup:
            message.headers = headers.added(block, ROLLUP, b"sub")
        elif rollup != "sub":
            raise errors.MESSAGE_SCHEDULES_ROLLUP_INVALID()

    def schedule_subjects(self, message: Message) -> None:
        target = headers.text(message.headers, schedule.TARGET)
        source = headers.text(message.headers, schedule.SOURCE)
        if not is_valid_literal(target) or target == message.subject:
            raise errors.MESSAGE_SCHEDULES_TARGET_INVALID()
        if source and (source in (target, message.subject) or not is_valid_literal(source)):
            raise errors.MESSAGE_SCHEDULES_SOURCE_INVALID()
        if not self.in_stream(target):
            raise errors.MESSAGE_SCHEDULES_TARGET_INVALID()
        if source and not self.in_stream(source):
            raise errors.MESSAGE_SCHEDULES_SOURCE_INVALID()

    def in_stream(self, subject: str) -> bool:
        return any(overlaps(own, subject) for own in self.stream.config.subjects)

    def scheduler(self, message: Message, staged: Staged | None = None) -> None:
        """A client may purge a schedule with a publish, and use these headers for nothing else."""
        block = message.headers
        scheduler = headers.text(block, schedule.SCHEDULER)
        follow = headers.value(block, schedule.NEXT)
        if not follow:
            if scheduler:
                raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
            return
        if (
            follow != schedule.PURGE
            or scheduler == message.subject
            or not is_valid_literal(scheduler)
        ):
            raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
        if not self.stream.config.allow_msg_schedules:
            raise errors.MESSAGE_SCHEDULES_DISABLED()
        if staged is not None and scheduler in staged.schedules:
            is_schedule = staged.schedules[scheduler]
        else:
            last = self.last(scheduler)
            is_schedule = last is None or bool(headers.value(last.headers, schedule.PATTERN))
        if not is_schedule:
            raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()

    def source(self, message: Message) -> None:
        if headers.value(message.headers, STREAM_SOURCE):
            raise errors.MESSAGE_SOURCE_HDR_NOT_ALLOWED()

    def duplicate_of(self, message: Message) -> int:
        """The sequence that was stored with the same id inside the window, or 0."""
        message_id = message.message_id
        if not message_id or self.stream.config.mirror is not None:
            return 0
        return self.sink.window.seq_of(message_id, self.sink.now_ns)

    def expected_last_id(self, message: Message) -> None:
        wanted = headers.value(message.headers, EXPECTED_LAST_ID)
        last = self.sink.last_message_id
        if wanted and wanted != last:
            shown, told = last.decode("utf-8", "surrogateescape"), wanted.decode("utf-8", "replace")
            raise errors.STREAM_WRONG_LAST_MSG_ID(id=shown).because(
                f"last msgid mismatch: {quoted(told)} vs {quoted(shown)}"
            )

    def rollup(self, message: Message, staged: Staged | None = None) -> None:
        config = self.stream.config
        message.rollup = headers.text(message.headers, ROLLUP).lower()
        if not message.rollup:
            return
        if not config.allow_rollup_hdrs or config.deny_purge:
            raise rollup_failed("rollup not permitted")
        if message.rollup not in ("sub", "all"):
            raise rollup_failed(f"rollup value invalid: {quoted(message.rollup)}")
        if staged is None:
            return
        if message.rollup == "sub" and message.subject in staged.schedules:
            raise errors.STREAM_ROLLUP_FAILED(err="batch rollup sub invalid")
        if message.rollup == "all" and staged.messages:
            raise errors.STREAM_ROLLUP_FAILED(err="batch rollup all invalid")

    # Counters

    def counter(self, message: Message, staged: Staged | None = None) -> None:
        """Add the increment to what the subject's last message says."""
        if not self.stream.config.allow_msg_counter:
            return
        if message.increment is None:
            raise errors.MESSAGE_INCR_MISSING()
        before = staged.totals.get(message.subject) if staged is not None else None
        if before is None:
            before = self.stored_total(message.subject)
        sources = self.counted_sources(message.subject)
        if sources:
            message.headers = counters.with_sources(message.headers, sources)
        after = counters.add(before, message.increment)
        message.total = counters.text(after)
        message.payload = counters.payload(after)
        most = self.max_payload
        if staged is not None:
            staged.totals[message.subject] = after
            if 0 <= self.stream.config.max_msg_size < most:
                most = self.stream.config.max_msg_size
        if message.size > most:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM().because(TOO_LARGE)

    def stored_total(self, subject: str) -> Decimal:
        last = self.last(subject)
        if last is None:
            return Decimal(0)
        try:
            return counters.total(last.payload)
        except counters.CounterBroken:
            raise errors.MESSAGE_COUNTER_BROKEN() from None

    def counted_sources(self, subject: str) -> counters.Sources:
        """What each origin's counter said last, as the subject's last message tells."""
        last = self.last(subject)
        try:
            return counters.sources(last.headers if last is not None else b"")
        except counters.CounterBroken:
            raise errors.MESSAGE_COUNTER_BROKEN() from None

    def sourced_counter(self, message: Message) -> None:
        """An origin's total: what it grew by since its last message is added here."""
        if not self.stream.config.allow_msg_counter:
            return
        if not headers.value(message.headers, INCREMENT):
            raise errors.MESSAGE_INCR_MISSING()
        before = self.stored_total(message.subject)
        sources = self.counted_sources(message.subject)
        try:
            found = counters.total(message.payload)
        except counters.CounterBroken:
            raise errors.MESSAGE_COUNTER_BROKEN() from None
        mark = headers.text(message.headers, STREAM_SOURCE).split(" ")
        origin, subject = mark[0], mark[4] if len(mark) > 4 else message.subject
        of_origin = sources.setdefault(origin, {})
        message.increment = counters.subtract(found, counters.value(of_origin.get(subject, "")))
        of_origin[subject] = counters.text(found)
        message.headers = headers.replaced(
            message.headers, INCREMENT, counters.text(message.increment).encode()
        )
        message.headers = counters.with_sources(message.headers, sources)
        message.payload = counters.payload(counters.add(before, message.increment))
        if message.size > self.max_payload:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM().because(TOO_LARGE)

    # Time to live

    def ttl(self, message: Message) -> None:
        """The time to live, raised to that of delete markers so that none is missed."""
        config = self.stream.config
        try:
            message.ttl_seconds = ttl_seconds(headers.value(message.headers, TTL) or b"")
        except TtlError:
            raise errors.MESSAGE_TTL_INVALID() from None
        least = config.subject_delete_marker_ttl // 1_000_000_000
        if 0 < message.ttl_seconds < least and config.max_msgs_per_subject != 1:
            message.ttl_seconds = least
            message.headers = headers.added(
                headers.removed(message.headers, TTL), TTL, b"%d" % least
            )
        elif message.ttl_seconds and config.allow_msg_ttl and len(self.sink.ttls) < TTLS_KNOWN_MAX:
            text = headers.value(message.headers, TTL) or b""
            self.sink.ttls[text] = ttl_ns(message.ttl_seconds)
