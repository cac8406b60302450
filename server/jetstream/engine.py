"""JetStream of one server: which accounts have it, their limits and use, all streams by name."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from config import featureflags
from config.options import AccountJetStreamOptions, JetStreamOptions, Options
from server.clock import Clock, Random
from server.core._account import Account
from server.core._broker import Broker
from server.core.subject import overlaps
from server.jetstream import consumers, errors, validate
from server.jetstream._hub import ConsumerHub
from server.jetstream.advisory import Advisories
from server.jetstream.apierror import ApiError
from server.jetstream.config import StreamConfig, adopt_required_level
from server.jetstream.copiers import Copiers
from server.jetstream.directbatches import DirectBatches
from server.jetstream.offline import OfflineStream
from server.jetstream.restores import Restores
from server.jetstream.snapshots import Snapshots
from server.jetstream.stores import Recovered, Stores, StoreUnavailable
from server.jetstream.stream import OpenIngest, Stream
from server.jetstream.subjectindex import SubjectIndex
from server.jetstream.timers import Timers
from storage.ports import StreamStore

UNLIMITED = AccountJetStreamOptions()

Settled = Callable[[str | None], None]


@dataclass(slots=True)
class ApiCounts:
    total: int = 0
    errors: int = 0
    inflight: int = 0  # of the whole server


class JetStreamAccount:
    """One account's streams, limits and counters."""

    def __init__(self, account: Account, limits: AccountJetStreamOptions) -> None:
        self.account = account
        self.name = account.name
        self.limits = limits
        # Changed by `add`, `remove` and `reconfigure` alone, which keep what is below equal to it.
        self.streams: dict[str, Stream] = {}
        self.names: list[str] = []
        """In order."""
        self._subjects: SubjectIndex[Stream] = SubjectIndex()
        self._matching: tuple[str, list[str]] = ("", [])
        """What was asked for last, by subject: pages of one listing ask for the same."""
        self._reserved_bytes: Counter[str] = Counter()
        self.offline: dict[str, OfflineStream] = {}
        """By name: kept, and not served."""
        self.api = ApiCounts()

    def add(self, stream: Stream) -> None:
        self.streams[stream.name] = stream
        insort(self.names, stream.name)
        self._enter(stream, stream.config)

    def remove(self, stream: Stream) -> None:
        del self.streams[stream.name]
        del self.names[bisect_left(self.names, stream.name)]
        self._leave(stream.config)

    def reconfigure(self, stream: Stream, config: StreamConfig) -> None:
        """The stream lives with another configuration from now on."""
        self._leave(stream.config)
        self._enter(stream, config)
        stream.update(config)

    def _enter(self, stream: Stream, config: StreamConfig) -> None:
        self._matching = ("", [])
        for subject in config.subjects:
            self._subjects.add(subject, stream)
        self._reserved_bytes[config.storage] += max(config.max_bytes, 0)

    def _leave(self, config: StreamConfig) -> None:
        self._matching = ("", [])
        for subject in config.subjects:
            self._subjects.remove(subject)
        self._reserved_bytes[config.storage] -= max(config.max_bytes, 0)

    def used_bytes(self, storage: str) -> int:
        return sum(s.store.bytes for s in self.streams.values() if s.config.storage == storage)

    def reserved_bytes(self, storage: str, but: str = "") -> int:
        """What the streams' max_bytes promise together, `but` left out."""
        reserved = self._reserved_bytes[storage]
        own = self.streams.get(but)
        if own is not None and own.config.storage == storage:
            reserved -= max(own.config.max_bytes, 0)
        return reserved

    def overlapping(self, subjects: list[str], but: Stream | None = None) -> bool:
        return any(
            stream is not but
            for subject in subjects
            for stream in self._subjects.overlapping(subject)
        ) or any(
            overlaps(subject, other)
            for offline in self.offline.values()
            for other in offline.config.subjects
            for subject in subjects
        )

    def online(self, name: str) -> None:
        """ApiError when the stream of that name is offline."""
        if name in self.offline:
            raise errors.STREAM_OFFLINE_REASON(err=self.offline[name].reason)

    def matching(self, subject: str) -> Sequence[str]:
        """The streams that hear something of `subject`, by name; all when it is empty."""
        if not subject:
            return sorted([*self.names, *self.offline]) if self.offline else self.names
        if self._matching[0] != subject:
            found = {stream.name for stream in self._subjects.overlapping(subject)}
            self._matching = (subject, sorted(found))
        offline = [
            name
            for name, each in self.offline.items()
            if any(overlaps(subject, own) for own in each.config.subjects)
        ]
        return sorted([*self._matching[1], *offline]) if offline else self._matching[1]


class Engine:
    """All of JetStream but the API's words. `open_ingest` makes what hears a stream's subjects."""

    def __init__(
        self,
        broker: Broker,
        options: Options,
        *,
        server_name: str,
        clock: Clock,
        random: Random,
        stores: Stores,
        open_ingest: OpenIngest | None = None,
        warn: Callable[[str], None] = lambda text: None,
        when_settled: Callable[[Settled], None] = lambda then: then(None),
    ) -> None:
        self.broker = broker
        self.when_settled = when_settled
        self.server_name = server_name
        self.clock = clock
        self.random = random
        self.stores = stores
        self.warn = warn
        self.accounts: dict[str, JetStreamAccount] = {}
        self.api = ApiCounts()
        self.timers = Timers()
        self.copiers = Copiers(self)
        self.snapshots = Snapshots(self)
        self.restores = Restores(self)
        self._open_ingest = open_ingest
        self.hub = ConsumerHub(
            broker,
            options.jetstream.domain,
            featureflags.is_on(options.feature_flags, featureflags.LONG_ACKS),
        )
        self.hub.set_book(stores.book)
        self.direct_batches = DirectBatches(self.hub, warn)
        self._follow(options)
        self.advisories = Advisories(self)

    def apply(self, options: Options) -> None:
        """Follows a reload: limits, accounts that go, and those that come with what is kept."""
        for name in self._follow(options):
            # A reload is never left half way: the disk's trouble is this account's alone.
            try:
                back = list(self._bring_back(list(self.stores.recover_account(name))))
            except (StoreUnavailable, OSError) as error:
                self.warn(f"Streams of account '{name}' are kept but not served: {error}")
                continue
            for stream in back:
                self.copiers.follow(stream)
                self.copiers.appeared(stream)

    def _follow(self, options: Options) -> list[str]:
        """Takes the limits of the options; the names of the accounts that are new."""
        self.options: JetStreamOptions = options.jetstream
        self.max_payload = options.max_payload_bytes
        self.domain = options.jetstream.domain
        wanted = {a.name: a.jetstream for a in options.accounts if a.jetstream is not None}
        if not options.accounts:
            wanted = {self.broker.default_account.name: UNLIMITED}
        new = [name for name in wanted if name not in self.accounts]
        for name, limits in wanted.items():
            if name in new:
                self.accounts[name] = JetStreamAccount(self.broker.account(name), limits)
            else:
                self.accounts[name].limits = limits
        for name in [name for name in self.accounts if name not in wanted]:
            self._leave(name)
        return new

    def _leave(self, name: str) -> None:
        """An account has no JetStream any more. What it stored is kept."""
        self.hub.keep_all()
        owner = self.accounts.pop(name)
        self.restores.end_of(owner)
        for stream in owner.streams.values():
            for consumer in stream.consumers.values():
                consumer.stop("shutdown")
            stream.close()
        self.hub.forget_account(name)

    def recover(self) -> None:
        """Brings back every stream that the stores know."""
        found = list(self.stores.recover())
        served = list(self._bring_back(found))
        all_served = len(served) == len(found)
        if self.stores.book is not None and all_served and not self.stores.locked:
            self.stores.book.drop_strays()
        for stream in served:
            self.copiers.follow(stream)

    def _bring_back(self, kept: Iterable[Recovered]) -> Iterator[Stream]:
        """Serves the streams of accounts with JetStream, each with its consumers."""
        for found in kept:
            owner = self.accounts.get(found.account)
            if owner is None:
                self.warn(
                    f"Stream '{found.account} > {found.config.name}' is kept but not served: "
                    "its account has no JetStream"
                )
                continue
            if self._keep_offline(owner, found):
                continue
            stream = Stream(
                self, owner.account, found.config, found.store, found.created_ns, self._open_ingest
            )
            owner.add(stream)
            stream.start()
            stream.store.enforce()  # limits that were lowered just before a kill
            consumers.recover(self, stream)
            yield stream

    def _keep_offline(self, owner: JetStreamAccount, found: Recovered) -> bool:
        """Whether the stream, or a consumer of it, was made for a newer server."""
        name, reason = found.config.name, found.offline
        consumers = {
            kept.name: kept.offline
            for kept in self.stores.consumers(owner.name, name)
            if kept.offline
        }
        if not reason and not consumers:
            return False
        for consumer, why in consumers.items():
            path = f"{owner.name} > {name} > {consumer}"
            self.warn(f"  Detected unsupported consumer '{path}': {why}")
        if reason:
            self.warn(f"  Detected unsupported stream '{owner.name} > {name}': {reason}")
        else:
            self.warn(f"  Stopping unsupported stream '{owner.name} > {name}'")
            reason = f'stopped - unsupported consumer "{next(iter(consumers))}"'
        owner.offline[name] = OfflineStream(found.config, found.store, reason, consumers)
        return True

    def random_below(self, bound: int) -> int:
        return self.random.below(bound)

    def now_ns(self) -> int:
        return self.clock.wall_ns()

    def streams(self) -> Iterator[Stream]:
        for owner in self.accounts.values():
            yield from owner.streams.values()

    def used_bytes(self, storage: str) -> int:
        return sum(owner.used_bytes(storage) for owner in self.accounts.values())

    def reserved_bytes(self, storage: str) -> int:
        return sum(owner.reserved_bytes(storage) for owner in self.accounts.values())

    def max_bytes(self, storage: str) -> int:
        options = self.options
        return options.max_memory_bytes if storage == "memory" else options.max_store_bytes

    # The life of a stream

    def create(self, owner: JetStreamAccount, asked: StreamConfig, pedantic: bool) -> Stream:
        """A new stream, or the one that already is exactly so. ApiError when it may not be."""
        owner.online(asked.name)
        self.check_room(owner, asked)
        config = validate.check_config(asked, self.surroundings(owner), pedantic)
        if config.num_replicas > 1:
            raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
        known = owner.streams.get(config.name)
        if known is not None:
            adopt_required_level(config, known.config)
            if config != known.config:
                raise errors.STREAM_NAME_EXIST()
            return known
        self.check_limits(owner, config, owner.reserved_bytes(config.storage, config.name))
        validate.check_filters(config)
        if owner.overlapping(config.subjects):
            raise errors.STREAM_SUBJECT_OVERLAP()
        return self._open(owner, config)

    def _open(self, owner: JetStreamAccount, config: StreamConfig) -> Stream:
        created_ns = self.now_ns()
        try:
            store = self.stores.create(owner.name, config, created_ns)
        except (StoreUnavailable, OSError) as error:
            self.warn(f"Stream create failed for '{owner.name} > {config.name}': {error}")
            raise errors.STREAM_CREATE(err=f"error creating store for stream: {error}") from error
        return self._serve(owner, config, store, created_ns)

    def adopt(
        self, owner: JetStreamAccount, config: StreamConfig, store: StreamStore, created_ns: int
    ) -> Stream:
        """A stream over a store that was filled before; from now on it is kept."""
        self.check_free(owner, config)
        self.stores.keep(owner.name, config, created_ns, store)
        return self._serve(owner, config, store, created_ns)

    def check_free(self, owner: JetStreamAccount, config: StreamConfig) -> None:
        """Neither its name nor its subjects are taken."""
        if config.name in owner.streams or config.name in owner.offline:
            raise errors.STREAM_NAME_EXIST_RESTORE_FAILED()
        if owner.overlapping(config.subjects):
            raise errors.STREAM_SUBJECT_OVERLAP()

    def _serve(
        self, owner: JetStreamAccount, config: StreamConfig, store: StreamStore, created_ns: int
    ) -> Stream:
        stream = Stream(self, owner.account, config, store, created_ns, self._open_ingest)
        owner.add(stream)
        stream.start()
        self.copiers.follow(stream)
        self.copiers.appeared(stream)
        self.advisories.stream_action(stream, "CREATED", "create")
        return stream

    def update(
        self, owner: JetStreamAccount, stream: Stream, asked: StreamConfig, pedantic: bool
    ) -> None:
        """Other settings for a stream that lives. ApiError when they may not be."""
        old = stream.config
        config = validate.check_update(old, asked, self.surroundings(owner), pedantic)
        consumers.check_limits(stream, config)
        self._check_growth(owner, old, config)
        if owner.overlapping(config.subjects, stream):
            raise errors.STREAM_SUBJECT_OVERLAP()
        self.stores.save(owner.name, config, stream.created_ns)
        owner.reconfigure(stream, config)
        self.advisories.stream_action(stream, "UPDATED", "modify")

    def delete(self, owner: JetStreamAccount, stream: Stream) -> None:
        self.copiers.deleted(stream)
        consumers.delete_all(self, stream)
        stream.close()
        owner.remove(stream)
        self.stores.remove(owner.name, stream.config, stream.store)
        self.advisories.stream_action(stream, "DELETED", "delete")

    def delete_offline(self, owner: JetStreamAccount, name: str) -> None:
        gone = owner.offline.pop(name)
        kept = [each.name for each in self.stores.consumers(owner.name, name)]
        self.stores.remove_consumers(owner.name, name, kept)
        self.stores.remove(owner.name, gone.config, gone.store)

    def close(self) -> None:
        self.snapshots.close()
        self.restores.close()
        self.direct_batches.close()
        self.hub.keep_all()
        for stream in self.streams():
            for consumer in stream.consumers.values():
                consumer.stop("shutdown")
            stream.close()
        self.copiers.close()
        self.hub.close()

    # Limits

    def surroundings(self, owner: JetStreamAccount) -> validate.Surroundings:
        def config_of(name: str) -> StreamConfig | None:
            found = owner.streams.get(name)
            return found.config if found is not None else None

        return validate.Surroundings(
            limits=owner.limits,
            duplicate_window_max_ns=self.options.max_duplicate_window_ns,
            config_of=config_of,
        )

    def check_room(self, owner: JetStreamAccount, asked: StreamConfig) -> None:
        """The limits that are asked before anything else, on what was sent."""
        others = len(owner.streams) - (asked.name in owner.streams)
        if 0 < owner.limits.max_streams <= others:
            raise errors.MAXIMUM_STREAMS_LIMIT()
        reserved = owner.reserved_bytes(asked.storage, asked.name)
        self.check_limits(owner, asked, reserved)

    def _check_growth(self, owner: JetStreamAccount, old: StreamConfig, new: StreamConfig) -> None:
        grown = max(max(new.max_bytes, 0) - max(old.max_bytes, 0), 0)
        rest = max(new.max_bytes - grown, 0)
        reserved = owner.reserved_bytes(new.storage, new.name) + rest
        self.check_limits(owner, new, reserved, grown)

    def check_limits(
        self,
        owner: JetStreamAccount,
        config: StreamConfig,
        reserved_bytes: int,
        added_bytes: int | None = None,
    ) -> None:
        """Whether the account and this server have room for what the stream may use."""
        limits, storage = owner.limits, config.storage
        if 0 < limits.max_consumers < config.max_consumers:
            raise errors.MAXIMUM_CONSUMERS_LIMIT()
        added = config.max_bytes if added_bytes is None else added_bytes
        added = 1 if added < 0 else added
        refused: Callable[[], ApiError]
        if storage == "memory":
            most, refused = limits.max_memory_bytes, errors.MEMORY_RESOURCES_EXCEEDED
        else:
            most, refused = limits.max_store_bytes, errors.STORAGE_RESOURCES_EXCEEDED
        if most >= 0 and reserved_bytes + added > most:
            raise refused()
        server_most = self.max_bytes(storage)
        if server_most >= 0 and self.reserved_bytes(storage) + added > server_most:
            raise refused()
