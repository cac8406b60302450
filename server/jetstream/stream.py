"""One stream: its configuration, its store, its subscriptions and its life.

The ingest (`_ingest.StreamSink`) hears the subjects and stores; this object tells it the rules and
is told what was stored. Nothing here is called for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from server.core._account import Account, PySub
from server.core.subject import is_subset, overlaps
from server.core.transform import SubjectTransform
from server.jetstream import errors
from server.jetstream._feed import StreamFeed
from server.jetstream.config import StreamConfig
from storage._store import StreamStore as DiskStore
from storage.ports import Discard, PurgeJob, StoredMessage, StoreLimits, StreamState, StreamStore

if TYPE_CHECKING:
    from server.jetstream.consumer import Consumer
    from server.jetstream.copiers import Inflow
    from server.jetstream.engine import Engine

REMOVED_AT_ONCE: Final = 256  # about a tenth of a millisecond


class Ingest(Protocol):
    """What a stream asks of its ingest."""

    shown_seq: int

    def subscribe(self, subjects: Sequence[str]) -> None:
        """Hear exactly these subjects from now on."""

    def configure(self) -> None:
        """The stream's configuration changed: read it again."""

    def removed(self) -> None:
        """Messages were deleted or purged."""

    def feed(self, feed: StreamFeed) -> None:
        """Ask it whether somebody wants a message."""

    def close(self) -> None:
        """Hear nothing any more; what is waiting for durability is answered no more."""


OpenIngest = Callable[["Stream"], Ingest]


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """What a publish is checked against, beside the store's own limits. -1: no limit."""

    message_bytes_max: int
    duplicate_window_ns: int
    no_ack: bool
    sealed: bool
    allow_rollup: bool
    allow_ttl: bool
    allow_counter: bool
    allow_schedules: bool
    allow_atomic: bool
    allow_batched: bool
    deny_purge: bool
    marker_ttl_ns: int


class Stream:
    """A stream of one account. `store` has its messages, `durable_seq` is the last one to show.

    The ingest moves `durable_seq`, and calls `on_stored` while anybody wants to know; a store in
    memory is durable at once.
    """

    def __init__(
        self,
        engine: Engine,
        account: Account,
        config: StreamConfig,
        store: StreamStore,
        created_ns: int,
        open_ingest: OpenIngest | None,
    ) -> None:
        self.engine = engine
        self.account = account
        self.config = config
        self.store = store
        self.created_ns = created_ns
        self.closed = False
        self.consumers: dict[str, Consumer] = {}
        self._starts_at = config.first_seq
        self.ingest: Ingest | None = None
        self._shown_seq = store.last_seq
        self.transform = input_transform(config, engine.random_below)
        self.republish = republish_transform(config, engine.random_below)
        self.interest: list[Callable[[int, int], None]] = []
        self.inflow: Inflow | None = None
        self._subs: list[PySub] = []
        self.ingest = open_ingest(self) if open_ingest is not None else None
        self._feed: StreamFeed | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def durable_seq(self) -> int:
        """The last sequence that may be shown. Its ingest keeps it, where there is one."""
        return self._shown_seq if self.ingest is None else self.ingest.shown_seq

    @durable_seq.setter
    def durable_seq(self, seq: int) -> None:
        if self.ingest is None:
            self._shown_seq = seq
        else:
            self.ingest.shown_seq = seq

    @property
    def feed(self) -> StreamFeed:
        """What its consumers hear of it; a stream without any has none."""
        if self._feed is None:
            assert isinstance(self.store, DiskStore)
            self._feed = StreamFeed(
                self.engine.hub,
                self.account,
                self.store,
                self.name,
                self.config.retention,
                self.durable_seq,
            )
            if self.ingest is not None:
                self.ingest.feed(self._feed)
        return self._feed

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)

    def start(self) -> None:
        """Hear the stream's subjects."""
        if self.ingest is not None:
            self.ingest.subscribe(self.config.subjects)

    def limits(self) -> PublishLimits:
        config = self.config
        return PublishLimits(
            message_bytes_max=config.max_msg_size,
            duplicate_window_ns=config.duplicate_window,
            no_ack=config.no_ack,
            sealed=config.sealed,
            allow_rollup=config.allow_rollup_hdrs,
            allow_ttl=config.allow_msg_ttl,
            allow_counter=config.allow_msg_counter,
            allow_schedules=config.allow_msg_schedules,
            allow_atomic=config.allow_atomic,
            allow_batched=config.allow_batched,
            deny_purge=config.deny_purge,
            marker_ttl_ns=config.subject_delete_marker_ttl,
        )

    def on_stored(self, first: int, last: int) -> None:
        """Messages `first` to `last` are durable: they may be shown from now on."""
        self.durable_seq = max(self.durable_seq, last)
        if self._feed is not None:
            self._feed.appended(first, last)
        for tell in self.interest:
            tell(first, last)

    def update(self, config: StreamConfig) -> None:
        """Live with another, checked configuration; `enforce_more` carries out its limits."""
        was_of_limits, self.config = self.config.retention == "limits", config
        self.transform = input_transform(config, self.engine.random_below)
        self.republish = republish_transform(config, self.engine.random_below)
        self.store.set_limits(store_limits(config))
        if self._feed is not None:
            self._feed.set_retention(config.retention)
        if was_of_limits and config.retention == "interest":
            self._begin_interest()
        if self.ingest is not None:
            self.ingest.configure()
            self.ingest.subscribe(config.subjects)
        self.engine.copiers.follow(self)

    def enforce_more(self) -> bool:
        """Go on with limits that were lowered; whether they hold."""
        if self.closed:
            raise errors.STREAM_NOT_FOUND()
        return self.store.enforce(REMOVED_AT_ONCE)

    def close(self) -> None:
        if self.closed:
            return
        self.engine.copiers.leave(self)
        self.closed = True
        if self._feed is not None:
            self._feed.close()
        if self.ingest is not None:
            self.ingest.close()

    # Reading and removing; the caller has checked sealed and the deny flags.

    def state(self, deleted: bool = False) -> StreamState:
        """What may be shown: messages that are not durable yet are left out."""
        state = self.store.state(deleted, self.durable_seq)
        if state.first_seq == 0 and self._starts_at == 1:
            return replace(state, first_seq=1)
        return state

    def purge(self, filters: str, seq: int, keep: int) -> int:
        """Remove all that match below `seq` (0: any) except the last `keep`; how many."""
        slices = self.purge_in_slices(filters, seq, keep)
        while True:
            try:
                next(slices)
            except StopIteration as done:
                return int(done.value)

    def roll_up(self, keep: int) -> None:
        """The newest message replaces all others, if `keep` is 1; consumers hear it as a purge."""
        if self.store.messages > keep:
            self.purge("", 0, keep)

    def purge_in_slices(self, filters: str, seq: int, keep: int) -> Generator[None, None, int]:
        """The same, with a stop behind each slice. What is stored meanwhile is not touched."""
        if seq > self.store.last_seq and not filters and not keep:
            # Beyond the end: the stream goes on from there, and nothing is left to wait for.
            purged = self.store.compact(seq)
            self.durable_seq = max(self.durable_seq, seq - 1)
            if self._feed is not None:
                self._feed.appended(self.durable_seq, self.durable_seq)
        else:
            with self._untold():
                job = self.store.start_purge(filters or None, seq, keep)
            while not (job.done or self._purge_more(job)):
                yield
            purged = job.purged
        self._removed()
        self._tell_purged(filters)
        return purged

    def _purge_more(self, job: PurgeJob) -> bool:
        if self.closed:
            raise errors.STREAM_NOT_FOUND()
        with self._untold():
            return job.step(REMOVED_AT_ONCE)

    @contextmanager
    def _untold(self) -> Iterator[None]:
        """Consumers do not hear of each message that goes, but of the purge when it is over."""
        if self._feed is not None:
            self._feed.is_purging = True
        try:
            yield
        finally:
            if self._feed is not None:
                self._feed.is_purging = False

    def _tell_purged(self, filters: str) -> None:
        """Consumers of what was purged go on behind it."""
        first, last = self.store.first_seq, self.store.last_seq
        for consumer in self.consumers.values():
            heard = consumer.config.filters
            if not filters or (heard and all(is_subset(each, filters) for each in heard)):
                left = self.store.filtered_state(filters or None, first).first_seq
                consumer.on_stream_purged(left if filters else first, last, False)
            elif not heard or any(overlaps(filters, each) for each in heard):
                consumer.on_stream_purged(first, last, True)

    def delete_message(self, seq: int, erase: bool) -> bool:
        deleted = self.store.delete(seq, erase)
        self._removed()
        return deleted

    def remove_unwanted(self, first: int) -> None:
        """Interest changed: what no consumer waits for goes, from `first` on."""
        if self._feed is None or self.config.retention != "interest":
            return
        if not self.consumers:
            self.purge("", 0, 0)
        else:
            self._feed.remove_unwanted(first, self.durable_seq)

    def _begin_interest(self) -> None:
        if self.consumers:
            self.remove_unwanted(self.store.first_seq)
        else:
            self.purge("", 0, 0)

    def _removed(self) -> None:
        self.engine.copiers.removed(self)
        if self.ingest is not None:
            self.ingest.removed()

    def message(self, seq: int) -> StoredMessage | None:
        """The message with this sequence, if it is durable."""
        return self._visible(self.store.load(seq))

    def next_message(self, seq: int, subject: str) -> StoredMessage | None:
        return self._visible(self.store.load_next(seq, subject))

    def last_message(self, subject: str) -> StoredMessage | None:
        found = self.store.load_last(subject)
        if found is not None and found.seq > self.durable_seq:
            found = self.store.load_previous(self.durable_seq, subject)
        return found

    def _visible(self, found: StoredMessage | None) -> StoredMessage | None:
        return found if found is not None and found.seq <= self.durable_seq else None


def store_limits(config: StreamConfig) -> StoreLimits:
    return StoreLimits(
        messages_max=config.max_msgs,
        bytes_max=config.max_bytes,
        age_max_ns=config.max_age,
        messages_per_subject_max=config.max_msgs_per_subject,
        discard=Discard(config.discard),
        discard_new_per_subject=config.discard_new_per_subject,
        allow_ttl=config.allow_msg_ttl,
        marker_ttl_ns=config.subject_delete_marker_ttl,
    )


def input_transform(
    config: StreamConfig, random_below: Callable[[int], int]
) -> SubjectTransform | None:
    wanted = config.subject_transform
    if wanted is None or not wanted.dest:
        return None
    return SubjectTransform(wanted.src, wanted.dest, random_below=random_below)


def republish_transform(
    config: StreamConfig, random_below: Callable[[int], int]
) -> SubjectTransform | None:
    wanted = config.republish
    if wanted is None or not wanted.dest:
        return None
    return SubjectTransform(wanted.src, wanted.dest, random_below=random_below)
