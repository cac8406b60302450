"""One consumer of a stream: what it was asked for, what it delivered and what was acknowledged.

The API (`api/consumers.py`, `consumers.py`) makes, changes, asks and removes consumers through this
class and never looks inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.gotime import time_ns

if TYPE_CHECKING:
    from server.jetstream.stream import Stream


@dataclass(frozen=True, slots=True)
class SequencePair:
    """A place in the consumer's count and in the stream's. `last_active_ns` 0: never."""

    consumer_seq: int
    stream_seq: int
    last_active_ns: int = 0


@dataclass(frozen=True, slots=True)
class PriorityGroupState:
    group: str
    pinned_client_id: str = ""
    pinned_ns: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """What an answer tells of a consumer beside its name and configuration."""

    delivered: SequencePair
    ack_floor: SequencePair
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    push_bound: bool = False
    priority_groups: tuple[PriorityGroupState, ...] = ()


class Consumer:
    """`config` has been checked; `stream.consumers[name]` is this object while it lives."""

    def __init__(self, stream: Stream, config: ConsumerConfig, name: str, created_ns: int) -> None:
        self.stream = stream
        self.config = config
        self.name = name
        self.created_ns = created_ns
        self.closed = False
        self._next_seq = starting_seq(stream, config)

    def start(self) -> None:
        """Listen for requests and acknowledgements, or begin to push."""

    def stop(self, reason: str) -> None:
        """Deliver nothing any more. `reason` is "deleted" (whoever waits is told), "stream" (it was
        deleted with its stream) or "shutdown" (its state stays for the next start)."""
        self.closed = True

    def info(self) -> ConsumerInfo:
        place = SequencePair(0, self._next_seq - 1)
        filters = self.config.filters or None
        return ConsumerInfo(
            delivered=place,
            ack_floor=place,
            num_pending=self.stream.store.num_pending(
                self._next_seq, filters, self.config.deliver_policy == "last_per_subject"
            ),
            push_bound=self.is_active if self.config.is_push else False,
            priority_groups=tuple(
                PriorityGroupState(group) for group in self.config.priority_groups[:1]
            ),
        )

    @property
    def is_active(self) -> bool:
        """Whether somebody listens (push) or asks (pull) just now."""
        config = self.config
        return config.is_push and self.stream.account.has_interest(config.deliver_subject)

    def last_used_ns(self, now_ns: int) -> int:
        """When it was last of use: a pull, an ack, interest; `now_ns` while somebody listens or
        waits. Acks that may still come count until their ack wait is over."""
        return now_ns if self.is_active else self.created_ns

    def update(self, config: ConsumerConfig) -> None:
        """Live with another configuration; it was checked and kept, `pause_until` as well."""
        self.config = config

    def pause_until(self, until_ns: int) -> None:
        """The configured pause changed: deliver nothing before `until_ns`; 0: go on."""

    def reset(self, seq: int) -> int:
        """Deliver from `seq` on (0: from behind the ack floor), forget what is pending; the
        sequence it starts from now. The caller has checked that `seq` may be asked."""
        self._next_seq = max(seq or self._next_seq, 1)
        return self._next_seq

    def unpin(self, group: str) -> None:
        """The pinned client of a priority group loses its place."""

    def on_stream_purged(self, up_to_seq: int) -> None:
        """Messages of the stream went by a purge; the first that may be left is `up_to_seq`."""

    def on_stream_deleted_message(self, seq: int) -> None:
        """One message of the stream was deleted."""


def starting_seq(stream: Stream, config: ConsumerConfig) -> int:
    """Where a new consumer begins in its stream."""
    state = stream.state()
    first, last = state.first_seq, state.last_seq
    filters = config.filters or None
    if config.opt_start_seq:
        return max(config.opt_start_seq, first)
    match config.deliver_policy:
        case "all":
            seq = first
        case "last":
            found = stream.store.load_last(filters)
            seq = found.seq if found is not None else 0
        case "last_per_subject":
            latest = stream.store.multi_last(filters)
            seq = latest[0] if latest else last
        case "by_start_time":
            seq = seq_of_time(stream, config, last)
        case _:
            seq = last + 1
    if first == 0:
        return 1
    return max(min(seq, last + 1), first)


def seq_of_time(stream: Stream, config: ConsumerConfig, last: int) -> int:
    """The first message of the start time or later; with filters the first they let through,
    unless that is the stream's last one."""
    seq = stream.store.first_seq_from_time(time_ns(config.opt_start_time or ""))
    heard = stream.store.load_next(seq, config.filters) if config.filters else None
    return heard.seq if heard is not None and seq < heard.seq < last else seq
