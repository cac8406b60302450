"""One consumer of a stream: its life, and what others ask and are told of it.

The API (`api/consumers.py`, `consumers.py`) makes, changes, asks and removes consumers through this
class and never looks inside. Delivery itself is `_consumer.ConsumerCore`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.jetstream._consumer import ConsumerCore
from server.jetstream._keeper import Keeper
from server.jetstream._policies import GroupFlow
from server.jetstream._restored import fit_to_stream, has_record, restore
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.consumerbook import key_of
from server.jetstream.gotime import store_ns
from server.jetstream.policies import Policies

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
        self.core = ConsumerCore(stream.feed, self, name, config, 1)
        self.policies = Policies(self)
        self._begin()

    def _begin(self) -> None:
        """Where it was, or where its policy says."""
        core, stream, book = self.core, self.stream, self.stream.engine.hub.book
        if book is None or not is_kept(self.config) or stream.config.storage == "memory":
            begin(core, stream, self.config)
            return
        keeper = Keeper(key_of(stream.account.name, stream.name, self.name), self.created_ns)
        records = book.state(keeper.key)
        is_known = has_record(keeper, records)
        if not is_known:
            begin(core, stream, self.config)
        restore(core, keeper, records)
        core.keep(keeper)
        if not is_known:
            return
        fit_to_stream(core)
        resume_seq = core.kept_resume_seq
        if resume_seq > core.next_seq:
            latest = stream.store.multi_last(self.config.filters or None, resume_seq - 1)
            core.skip_to([seq for seq in latest if seq >= core.next_seq], resume_seq)
            if not latest or latest[-1] < core.next_seq:
                core.start_behind(resume_seq)

    @property
    def closed(self) -> bool:
        return self.core.closed

    def start(self) -> None:
        """Listen for requests and acknowledgements, or begin to push."""
        self.policies.settle()
        self.core.start()

    def stop(self, reason: str) -> None:
        """Deliver nothing any more. `reason` is "deleted" (whoever waits is told), "stream" (it was
        deleted with its stream) or "shutdown" (its state stays for the next start)."""
        if reason == "shutdown":
            self.core.pulls.refuse_all(409, "Server Shutdown", with_rest=True)
        elif not self.closed:
            self.core.pulls.refuse_all(409, "Consumer Deleted")
        self.core.stop()
        self.policies.close()
        if reason != "shutdown":
            self.core.forget()

    def info(self) -> ConsumerInfo:
        core = self.core
        waiting = 0 if self.config.is_push else core.waiting_count()
        delivered_seq = core.delivered_seq or core.passed_seq
        return ConsumerInfo(
            delivered=SequencePair(
                core.next_consumer_seq - 1, delivered_seq, core.delivered_wall_ns
            ),
            ack_floor=SequencePair(core.floor_consumer_seq, core.floor_seq, core.acked_wall_ns),
            num_ack_pending=core.ack_pending,
            num_redelivered=core.redelivered,
            num_waiting=waiting,
            num_pending=core.num_pending,
            push_bound=core.active,
            priority_groups=tuple(self._group_states()),
        )

    def _group_states(self) -> Iterator[PriorityGroupState]:
        """Only the first group is served."""
        flow = self.core.flow
        for group in self.config.priority_groups[:1]:
            if isinstance(flow, GroupFlow):
                yield PriorityGroupState(group, flow.pin, flow.pinned_wall_ns)
            else:
                yield PriorityGroupState(group)

    @property
    def is_active(self) -> bool:
        """Whether somebody listens (push) or asks (pull) just now."""
        if self.config.is_push:
            return self.core.has_listeners()
        return self.core.waiting_count() > 0

    def last_used_ns(self, now_ns: int) -> int:
        """When it was last of use: a pull, an ack, interest; `now_ns` while somebody listens or
        waits. Acks that may still come count until their ack wait is over."""
        if self.is_active:
            return now_ns
        core = self.core
        unused_ns = core.hub.broker.now_ns() - core.used_ns
        used_ns = max(self.created_ns, now_ns - unused_ns)
        if core.ack_pending:
            used_ns += self.config.ack_wait
        return min(used_ns, now_ns)

    def update(self, config: ConsumerConfig) -> None:
        """Live with another configuration; it was checked and kept, `pause_until` as well."""
        had = self.config.filters
        self.config = config
        self.core.configure(config)
        self.policies.settle()
        if had != config.filters:
            self.stream.remove_unwanted(self.core.floor_seq)

    def pause_until(self, until_ns: int) -> None:
        """The configured pause changed: deliver nothing before `until_ns`; 0: go on."""
        self.policies.settle()

    def reset(self, seq: int) -> int:
        """Deliver from `seq` on (0: from behind the ack floor), forget what is pending; the
        sequence it starts from now. The caller has checked that `seq` may be asked."""
        started = max(seq or self.core.floor_seq + 1, 1)
        self.core.reset(started)
        self.stream.remove_unwanted(self.stream.store.first_seq)
        return started

    def unpin(self, group: str) -> None:
        """The pinned client of a priority group loses its place."""
        flow = self.core.flow
        if isinstance(flow, GroupFlow):
            flow.unpin()

    def on_stream_purged(self, first_seq: int, last_seq: int, is_wider: bool) -> None:
        """Messages of the stream went by a purge; the first that may be left is `first_seq`."""
        self.core.purged(first_seq, last_seq, is_wider)

    # What the core tells

    def terminated(self, seq: int, consumer_seq: int, deliveries: int, reason: str) -> None:
        advisories = self.stream.engine.advisories
        advisories.consumer_terminated(self, seq, consumer_seq, deliveries, reason)

    def naked(self, seq: int, consumer_seq: int, deliveries: int) -> None:
        self.stream.engine.advisories.consumer_naked(self, seq, consumer_seq, deliveries)

    def max_delivered(self, seq: int, deliveries: int) -> None:
        self.stream.engine.advisories.consumer_max_deliver(self, seq, deliveries)

    @property
    def where(self) -> str:
        return f"{self.stream.account.name} > {self.stream.name} > {self.name}"

    def warn_of_delay(self, argument: bytes) -> None:
        text = json.dumps(argument.decode("utf-8", "replace"))
        self.stream.engine.warn(f"JetStream consumer '{self.where}' bad NAK delay value: {text}")

    def broken(self, error: BaseException) -> None:
        """An invariant of ours: this consumer delivers nothing more, its state stays."""
        self.stream.engine.warn(f"JetStream consumer '{self.where}' is down: {error!r}")
        self.core.stop()


def is_kept(config: ConsumerConfig) -> bool:
    """Whether a consumer outlives the process."""
    return not config.direct and not config.mem_storage


def begin(core: ConsumerCore, stream: Stream, config: ConsumerConfig) -> None:
    """A new consumer goes to where its deliver policy says."""
    last = stream.state().last_seq
    if config.deliver_policy == "last_per_subject" and stream.config.max_msgs_per_subject != 1:
        latest = stream.store.multi_last(config.filters or None, stream.durable_seq)
        core.start_at(latest[0] if latest else last)
        core.skip_to(latest, last + 1)
    else:
        core.start_at(starting_seq(stream, config))
    if config.replay_policy == "original":
        core.replay_until(last)


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
            seq = first  # the stream has only one of each subject
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
    seq = stream.store.first_seq_from_time(store_ns(config.opt_start_time or ""))
    heard = stream.store.load_next(seq, config.filters) if config.filters else None
    return heard.seq if heard is not None and seq < heard.seq < last else seq
