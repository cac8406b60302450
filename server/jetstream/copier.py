"""What flows into a stream from another stream of this server: the part mirrors and sources share.

A copier reads its origin's store directly, in slices, up to what is durable there; the origin wakes
it. No consumer stands between them (but see `supplies`), nothing is polled, and an origin that
appears or goes is noticed at once. What the target refuses is tried again until it is taken:
nothing is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from config.limits import MILLISECOND_NS, SECOND_NS
from server.core.transform import SubjectTransform
from server.jetstream import consumers, errors, headers
from server.jetstream._copy import PlainCopier
from server.jetstream.apierror import ApiError, ErrorKind
from server.jetstream.checks import REQUEST_INFO, ROLLUP, Message, quoted
from server.jetstream.config import StreamSource
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.ingest import StreamIngest
from server.jetstream.supplies import (
    KEPT_FOR_CONSUMERS,
    ConsumerSupply,
    StoreSupply,
    Supply,
    holding_consumer,
)
from storage.ports import StoredMessage

if TYPE_CHECKING:
    from server.jetstream.copiers import Copiers
    from server.jetstream.publish import Publisher
    from server.jetstream.stream import Stream

SLICE_COST: Final = 2048
"""A slice is so many plain messages; one that comes to Python costs as much as several."""
MESSAGE_COST: Final = 8
WAITING_MESSAGES_MAX: Final = 16_384
WAITING_BYTES_MAX: Final = 32 << 20
RETRY_NS: Final = 250 * MILLISECOND_NS
LOOK_NS: Final = SECOND_NS
NEVER_HEARD: Final = -1
HEARTBEAT_NS: Final = SECOND_NS
STORE_FAILED: Final = errors.STREAM_STORE_FAILED.err_code


class Copier:
    """One mirror or source of `target`. `origin` is None while it is not connected."""

    KIND: ClassVar[str]
    LETTER: ClassVar[str]
    REQUIRES_FLOW_CONTROL: ClassVar[ErrorKind]

    def __init__(self, copiers: Copiers, target: Stream, source: StreamSource) -> None:
        self.copiers = copiers
        self.target = target
        self.source = source
        self.origin: Stream | None = None
        self.supply: Supply | None = None
        self.plain: PlainCopier | None = None
        self.held_name = ""
        self.position = 0
        self.attempted_seq = 0
        self.error: ApiError | None = None
        self.asked = False
        self.blocked = False
        self.fault = ""
        """What the log was told of last; it is told once."""
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
            self.meet(origin)
            self.supply = self.open_supply(origin)
        except ApiError as error:
            self.error = error
            self.look_again()
            return
        self.error = None
        self.origin = origin
        self.start(self.supply.delivered_seq)
        if isinstance(self.supply, StoreSupply) and not self.transforms:
            self.plain = self.made_plain(origin)
        self.heard()
        self.look_again()
        self.wake()

    def open_supply(self, origin: Stream) -> Supply:
        source, start = self.source, self.starting_config()
        if source.consumer is not None:
            held = origin.consumers.get(source.consumer.name)
            if held is None:
                raise errors.CONSUMER_NOT_FOUND()
            if held.config.ack_policy != "flow_control":
                raise self.REQUIRES_FLOW_CONTROL()
            held.reset(0)
            return ConsumerSupply(self.target, held, source.consumer.deliver_subject, self.wake)
        if origin.config.retention not in KEPT_FOR_CONSUMERS:
            return StoreSupply(origin, start, self.filters, self.wake)
        config = self.target.config
        about = {
            f"_nats.{self.KIND}.stream": config.name,
            f"_nats.{self.KIND}.acc": self.target.account.name,
        }
        if domain := self.target.engine.domain:
            about[f"_nats.{self.KIND}.domain"] = domain
        self.held_name = self.consumer_name
        held = holding_consumer(origin, self.held_name, start, about, self.LETTER)
        subject = held.config.deliver_subject
        return ConsumerSupply(self.target, held, subject, self.wake)

    @property
    def consumer_name(self) -> str:
        """Of the consumer that holds messages for this copier, where one is needed."""
        raise NotImplementedError

    def meet(self, origin: Stream) -> None:
        """Is it the origin that was there before?"""

    def starting_config(self) -> ConsumerConfig:
        """Where a consumer would have to begin for this copier."""
        raise NotImplementedError

    def start(self, delivered_seq: int) -> None:
        """Everything up to `delivered_seq` is not ours to copy."""
        raise NotImplementedError

    def detach(self, why: ApiError | None = None) -> None:
        if self.supply is not None:
            self.supply.close()
        self.origin = self.supply = self.plain = None
        self.error = why

    def close(self) -> None:
        self.closed = True
        self.armed_ns = None
        self.detach()

    def forget(self) -> None:
        """The consumer that held messages for it goes."""
        origin = self.copiers.origin_of(self)
        if origin is None or self.source.consumer is not None:
            return
        held = origin.consumers.get(self.held_name or self.consumer_name)
        if held is not None and held.config.sourcing:
            consumers.delete(origin.engine, held)
        self.held_name = ""

    def rename(self) -> None:
        """Other sources of the same origin came or went: its consumer may have another name now."""
        if self.held_name and self.held_name != self.consumer_name:
            self.forget()
            self.detach()
            self.wake()

    def look_again(self) -> None:
        """Consumers come and go without a word: look now and then where one is needed."""
        if isinstance(self.supply, StoreSupply):
            return
        if self.origin is not None or self.awaits_consumer:
            engine = self.target.engine
            engine.timers.arm(self, engine.now_ns() + LOOK_NS)

    @property
    def awaits_consumer(self) -> bool:
        """Whether the origin is there, but not what would hand out its messages."""
        return self.error is not None and self.copiers.origin_of(self) is not None

    # Work

    def wake(self) -> None:
        self.copiers.mark(self)

    def run(self) -> None:
        """One slice; whatever is left asks for another."""
        if self.closed:
            return
        if self.supply is not None and self.supply.is_over:
            self.detach()
        if self.supply is None:
            self.connect()
        elif not self.blocked and not self.target.closed:
            self.copy(self.supply)

    def copy(self, supply: Supply) -> None:
        ingest = self.ingest
        cost = 0
        while cost < SLICE_COST and self.has_room(ingest):
            cost += self.copy_plain(SLICE_COST - cost)
            message = supply.next(self.position) if cost < SLICE_COST else None
            if message is None:
                break
            self.attempted_seq = message.seq
            if not self.taken(message):
                break
            self.position = message.seq
            cost += MESSAGE_COST
        if cost:
            if cost >= SLICE_COST:
                # A full target wakes its copiers when it is durable.
                self.wake()
            self.heard()
            self.copied()
            ingest.arm()

    def taken(self, message: StoredMessage) -> bool:
        """Whether the target took it. What was stored although it failed is not tried again."""
        self.publisher.has_changed_store = False
        try:
            self.take(message)
        except ApiError as error:
            self.block(error)
            return False
        except Exception as error:
            if self.publisher.has_changed_store:
                self.ingest.shared.commit.broken(self.ingest.sink, error)
            raise
        return True

    def copy_plain(self, messages_max: int) -> int:
        """Copy what needs nothing of Python; how many."""
        plain, origin = self.plain, self.origin
        config, target = self.target.config, self.target
        if (
            plain is None
            or origin is None
            or config.allow_msg_counter
            or config.retention == "interest"
            or target.transform is not None
            or target.republish is not None
        ):
            return 0
        plain.copy(self.position, origin.durable_seq, messages_max)
        self.position = plain.position
        return plain.copied

    def made_plain(self, origin: Stream) -> PlainCopier | None:
        """What copies plain messages, where their subjects stay as they are."""
        raise NotImplementedError

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
        if self.supply is None:
            return
        self.supply.on_target_durable(last)
        if not self.blocked and self.supply.next(self.position) is not None:
            self.wake()

    # What the target refuses

    def block(self, error: ApiError) -> None:
        """Try again soon. A target that is full and discards new messages is no fault."""
        if error.err_code != STORE_FAILED or self.ingest.sink.down is not None:
            if self.error is None or self.error.err_code != error.err_code:
                self.copiers.warn_of(self, error)
            self.error = error
        self.blocked = True
        if self.supply is not None:
            self.supply.refused()
        timers = self.target.engine.timers
        timers.arm(self, self.target.engine.now_ns() + RETRY_NS)

    def tick(self, now_ns: int) -> None:
        if self.blocked:
            self.blocked = False
            self.error = None
        self.look_again()
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
        if self.supply is None:
            return 0
        return max(self.supply.waiting(max(self.attempted_seq, self.position)) - 1, 0)

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
