"""What flows into a stream from another stream of this server: the part mirrors and sources share.

A copier reads its origin's store directly, in slices, up to what is durable there; the origin wakes
it. There is no consumer between them, nothing is polled, and an origin that appears or goes is
noticed at once. What the target refuses is tried again until it is taken: nothing is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from config.limits import MILLISECOND_NS, SECOND_NS
from server.core.transform import SubjectTransform
from server.jetstream import errors, headers
from server.jetstream.apierror import ApiError
from server.jetstream.checks import REQUEST_INFO, ROLLUP, Message, quoted
from server.jetstream.config import StreamSource
from server.jetstream.ingest import StreamIngest
from storage.ports import StoredMessage

if TYPE_CHECKING:
    from server.jetstream.copiers import Copiers
    from server.jetstream.publish import Publisher
    from server.jetstream.stream import Stream

SLICE_MESSAGES: Final = 256
WAITING_MESSAGES_MAX: Final = 16_384
WAITING_BYTES_MAX: Final = 32 << 20
RETRY_NS: Final = 250 * MILLISECOND_NS
NEVER_HEARD: Final = -1
HEARTBEAT_NS: Final = SECOND_NS
STORE_FAILED: Final = errors.STREAM_STORE_FAILED.err_code


class Copier:
    """One mirror or source of `target`. `origin` is None while it is not connected."""

    def __init__(self, copiers: Copiers, target: Stream, source: StreamSource) -> None:
        self.copiers = copiers
        self.target = target
        self.source = source
        self.origin: Stream | None = None
        self.position = 0
        self.attempted_seq = 0
        self.error: ApiError | None = None
        self.asked = False
        self.blocked = False
        self.closed = False
        self.armed_ns: int | None = None
        self.heard_ns = 0
        self.filters, self.transforms = compiled(source, target)

    # Connection

    def connect(self) -> None:
        """Attach to the origin, or know why that is not possible."""
        self.asked = True
        try:
            origin = self.copiers.find(self)
            self.start(origin)
        except ApiError as error:
            self.error = error
            return
        self.error = None
        self.origin = origin
        self.heard()
        origin.interest.append(self.on_durable)
        self.wake()

    def start(self, origin: Stream) -> None:
        """Find the place to read from; ApiError when there is none."""
        raise NotImplementedError

    def detach(self, why: ApiError | None = None) -> None:
        if self.origin is not None:
            self.origin.interest.remove(self.on_durable)
            self.origin = None
        self.error = why

    def close(self) -> None:
        self.closed = True
        self.armed_ns = None
        self.detach()

    # Work

    def wake(self) -> None:
        self.copiers.mark(self)

    def on_durable(self, first: int, last: int) -> None:
        """The origin has more to show."""
        self.wake()

    def run(self) -> None:
        """One slice; whatever is left asks for another."""
        if self.closed:
            return
        if self.origin is None:
            self.connect()
        elif not self.blocked and not self.target.closed:
            self.copy(self.origin)

    def copy(self, origin: Stream) -> None:
        ingest = self.ingest
        last = origin.durable_seq
        copied = 0
        while copied < SLICE_MESSAGES and self.has_room(ingest):
            message = origin.store.load_next(self.position + 1, self.filters)
            if message is None or message.seq > last:
                break
            self.attempted_seq = message.seq
            try:
                self.take(message)
            except ApiError as error:
                self.block(error)
                break
            self.position = message.seq
            copied += 1
        else:
            # A full target wakes its copiers when it is durable.
            if copied == SLICE_MESSAGES:
                self.wake()
        if copied:
            self.heard()
            self.copied()
            ingest.arm()

    def has_room(self, ingest: StreamIngest) -> bool:
        sink = ingest.sink
        return (
            sink.waiting_messages < WAITING_MESSAGES_MAX and sink.waiting_bytes < WAITING_BYTES_MAX
        )

    def take(self, stored: StoredMessage) -> None:
        """Store one message of the origin; ApiError when the target refuses it."""
        raise NotImplementedError

    def copied(self) -> None:
        """A slice is done."""

    def on_target_durable(self, last: int) -> None:
        """The target has everything up to `last` on disk."""
        origin = self.origin
        if origin is not None and not self.blocked and self.position < origin.durable_seq:
            self.wake()

    # What the target refuses

    def block(self, error: ApiError) -> None:
        """Try again soon. A target that is full and discards new messages is no fault."""
        if error.err_code != STORE_FAILED or self.ingest.sink.down is not None:
            if self.error is None or self.error.err_code != error.err_code:
                self.copiers.warn_of(self, error)
            self.error = error
        self.blocked = True
        timers = self.target.engine.timers
        timers.arm(self, self.target.engine.now_ns() + RETRY_NS)

    def tick(self, now_ns: int) -> None:
        if self.blocked:
            self.blocked = False
            self.error = None
            self.wake()

    # Information

    def heard(self) -> None:
        self.heard_ns = self.target.engine.now_ns()

    @property
    def active_ns(self) -> int:
        """Since the origin was heard of; while it is there it shows signs of life each second."""
        if not self.heard_ns:
            return NEVER_HEARD
        since_ns = max(self.target.engine.now_ns() - self.heard_ns, 0)
        return since_ns % HEARTBEAT_NS if self.origin is not None else since_ns

    @property
    def lag(self) -> int:
        """Messages that are waiting behind the one that was tried last, as the reference counts."""
        origin = self.origin
        if origin is None:
            return 0
        seq = max(self.attempted_seq, self.position)
        waiting = origin.store.num_pending(seq + 1, self.filters)
        return max(waiting - 1, 0)

    @property
    def shown_error(self) -> ApiError | None:
        return self.error

    # For take

    @property
    def ingest(self) -> StreamIngest:
        ingest = self.target.ingest
        assert isinstance(ingest, StreamIngest)
        return ingest

    @property
    def publisher(self) -> Publisher:
        return self.ingest.publisher

    def mapped(self, subject: str) -> str:
        """The first transform that matches decides."""
        for transform in self.transforms:
            found = transform.apply(subject) if transform is not None else None
            if found is not None:
                return found
        return subject

    def begun(self, stored: StoredMessage, block: bytes, ts_ns: int = 0) -> Message:
        """The message under the target's subject, after the checks that come first."""
        publisher = self.publisher
        subject = publisher.transformed(self.mapped(stored.subject))
        message = Message(subject, b"", block, stored.payload, ts_ns=ts_ns)
        publisher.checks.record_size(message)
        publisher.checks.sealed()
        message.headers = headers.removed(block, REQUEST_INFO)
        return message

    def finish(self, message: Message) -> None:
        """The checks that come last; the origin has made the others."""
        checks = self.publisher.checks
        checks.message_size(message)
        checks.header_size(message)
        self.publisher.keep(message)


def compiled(
    source: StreamSource, target: Stream
) -> tuple[list[str] | None, list[SubjectTransform | None]]:
    """The filters, None for all subjects, and the transforms; None for one that maps nothing."""
    transforms = [
        SubjectTransform(each.src, each.dest, random_below=target.engine.random_below)
        if each.dest
        else None
        for each in source.subject_transforms
    ]
    filters = [each.src or ">" for each in source.subject_transforms]
    if source.filter_subject:
        filters.append(source.filter_subject)
    return filters or None, transforms


def without_conditions(block: bytes) -> bytes:
    """What a publisher expected held at the origin; batches are no matter of the copy."""
    if not block:
        return block
    return headers.removed_prefix(headers.removed_prefix(block, b"Nats-Expected-"), b"Nats-Batch-")


def rollup_of(block: bytes) -> str:
    rollup = headers.text(block, ROLLUP).lower()
    if rollup not in ("", "sub", "all"):
        raise errors.STREAM_ROLLUP_FAILED(err=f"rollup value invalid: {quoted(rollup)}")
    return rollup
