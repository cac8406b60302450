"""Restores: a stream made again from an archive that comes in chunks.

The messages go into a store that nobody sees and that the next start throws away. Only when the
archive was whole and all of it is durable does the stream appear, with its consumers: a bad
archive, a stall or a crash leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from config.limits import SECOND_NS
from server.jetstream import consumer_validate, consumers, errors, gojson, headers
from server.jetstream.api.answers import stream_info
from server.jetstream.apierror import ApiError
from server.jetstream.archive import ArchiveError, ArchiveReader, Entry
from server.jetstream.checks import TTL
from server.jetstream.config import StreamConfig
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.goscan import JsonError
from server.jetstream.stores import StoreUnavailable
from server.jetstream.ttl import TtlError, ttl_ns, ttl_seconds
from server.wire.s2 import S2Error, S2Reader
from storage.ports import StoreError, StreamStore

if TYPE_CHECKING:
    from server.jetstream.advisory import Asker
    from server.jetstream.engine import Engine, JetStreamAccount

RESTORES_MAX: Final = 16
STALL_NS: Final = 5 * SECOND_NS
ENTRY_BYTES_MAX: Final = 8 << 20
CONSUMER_PREFIX: Final = "consumers/"
ANSWER_TYPE: Final = "io.nats.jetstream.api.v1.stream_create_response"


class RestoreError(Exception):
    """Why an archive cannot be restored."""


class Place(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class KeptState(msgspec.Struct):
    """A consumer's state; what is pending there is delivered again."""

    delivered: Place = msgspec.field(default_factory=Place)
    ack_floor: Place = msgspec.field(default_factory=Place)
    pending: dict[str, Any] | None = None


class ArchivedConsumer(msgspec.Struct):
    config: msgspec.Raw = msgspec.Raw(b"null")
    state: KeptState | None = None


class ArchivedState(msgspec.Struct):
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    consumer_count: int = 0


@dataclass(frozen=True, slots=True)
class FoundConsumer:
    name: str
    config: ConsumerConfig
    resume_seq: int


class Expected(Enum):
    STATE = 0
    CONSUMER = 1
    MESSAGE = 2
    NOTHING = 3


class Contents:
    """Puts the entries of an archive into a store that is not shown yet."""

    def __init__(self, engine: Engine, owner: JetStreamAccount, config: StreamConfig) -> None:
        self.engine = engine
        self.owner = owner
        self.config = config
        self.created_ns = engine.now_ns()
        self.store: StreamStore | None = None
        self.consumers: list[FoundConsumer] = []
        self.expected = Expected.STATE
        self._state = ArchivedState()
        most = max(engine.max_payload, ENTRY_BYTES_MAX)
        self._frames = S2Reader()
        self._archive = ArchiveReader(most)

    def feed(self, chunk: bytes) -> None:
        """ApiError or RestoreError when this cannot be restored."""
        try:
            for data in self._frames.feed(chunk):
                for entry in self._archive.feed(data):
                    self._take(entry)
        except (S2Error, ArchiveError, StoreError, OSError) as error:
            raise RestoreError(str(error)) from error
        self.engine.stores.commit()

    def _take(self, entry: Entry) -> None:
        match self.expected:
            case Expected.STATE:
                self._take_state(entry)
            case Expected.CONSUMER:
                self._take_consumer(entry)
            case Expected.MESSAGE:
                self._take_message(entry)
        if self.expected is Expected.CONSUMER and (
            len(self.consumers) == self._state.consumer_count
        ):
            self.expected = Expected.MESSAGE

    def _take_state(self, entry: Entry) -> None:
        if entry.name != b"state.json":
            raise RestoreError("expected state.json first")
        try:
            self._state = state = msgspec.json.decode(entry.payload, type=ArchivedState)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RestoreError(f"error in state.json: {error}") from error
        engine, owner, config = self.engine, self.owner, self.config
        reserved = owner.reserved_bytes(config.storage, config.name)
        engine.check_limits(owner, config, reserved, max(config.max_bytes, state.bytes))
        engine.check_free(owner, config)
        try:
            self.store = engine.stores.begin(owner.name, config, self.created_ns)
        except (StoreUnavailable, OSError) as error:
            raise RestoreError(f"error creating store for stream: {error}") from error
        if state.first_seq > 1:
            self.store.compact(state.first_seq)
        self.expected = Expected.CONSUMER

    def _take_consumer(self, entry: Entry) -> None:
        name = entry.name.decode("utf-8", "replace")
        if not name.startswith(CONSUMER_PREFIX):
            raise RestoreError(f'expected consumer, found "{name}"')
        name = name.removeprefix(CONSUMER_PREFIX)
        try:
            found = msgspec.json.decode(entry.payload, type=ArchivedConsumer)
            if bytes(found.config) == b"null" or found.state is None:
                raise RestoreError(f'consumer "{name}" is missing its config or state')
            asked = gojson.decode(
                ConsumerConfig, bytes(found.config), "ConsumerConfig", strict=False
            )
            limits = consumer_validate.Limits(self.config, self.engine.options, self.owner.limits)
            config = consumer_validate.check_config(asked, limits, False)
        except (msgspec.DecodeError, UnicodeDecodeError, JsonError) as error:
            raise RestoreError(f'failed to decode consumer "{name}" state: {error}') from error
        except ApiError as error:
            raise RestoreError(f'failed to add consumer "{name}": {error}') from error
        place = found.state.ack_floor if found.state.pending else found.state.delivered
        self.consumers.append(FoundConsumer(name, config, place.stream_seq + 1))

    def _take_message(self, entry: Entry) -> None:
        store, seq = self.store, entry.seq
        assert store is not None
        if entry.is_end and not entry.seq:
            self.expected = Expected.NOTHING
            if store.last_seq < self._state.last_seq:
                store.skip(self._state.last_seq - store.last_seq)
            return
        if seq == 0:
            raise RestoreError("expected message sequence")
        if seq <= store.last_seq:
            raise RestoreError(f"message sequence {seq} out of order")
        size = len(entry.headers) + len(entry.payload)
        if size > self.engine.max_payload:
            raise RestoreError(f"message sequence {seq} exceeds maximum payload size")
        if 0 <= self.config.max_msg_size < size:
            raise RestoreError(f"message sequence {seq} exceeds maximum message size")
        try:
            seconds = ttl_seconds(headers.value(entry.headers, TTL) or b"")
        except TtlError as error:
            raise RestoreError(f"failed to parse message TTL: {error}") from error
        is_over = seconds > 0 and entry.ts_ns + ttl_ns(seconds) < self.created_ns
        gap = seq - store.last_seq - (0 if is_over else 1)
        if gap:
            store.skip(gap)
        if not is_over:
            subject = entry.name.decode("utf-8", "surrogateescape")
            store.store_at(seq, subject, entry.headers, entry.payload, entry.ts_ns, ttl_ns(seconds))

    @property
    def is_whole(self) -> bool:
        return self.expected is Expected.NOTHING and self._frames.is_between_chunks

    def drop(self) -> None:
        """As if it had never been."""
        store, self.store = self.store, None
        if store is not None:
            self.engine.stores.discard(self.config, store)


class Restore:
    """One that is being received."""

    def __init__(
        self, restores: Restores, owner: JetStreamAccount, config: StreamConfig, asker: Asker
    ) -> None:
        engine = restores.engine
        self.restores = restores
        self.owner = owner
        self.config = config
        self.asker = asker
        self.contents = Contents(engine, owner, config)
        self.armed_ns: int | None = None
        self.failure: Exception | None = None
        self.started_ns = self._heard_ns = engine.now_ns()
        self.bytes = 0
        token = engine.advisories.event_id()
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{token}"
        self._sub = owner.account.subscribe(self.subject, self.on_chunk)
        engine.timers.arm(self, self._heard_ns + STALL_NS)

    @property
    def where(self) -> str:
        return f"{self.owner.name} > {self.config.name}"

    def on_chunk(self, subject: str, reply: str, block: bytes, body: bytes, _: str) -> None:
        engine = self.restores.engine
        self._heard_ns = engine.now_ns()
        if not reply:
            self.fail(f"restore for stream '{self.where}' requires reply subject for each chunk")
            return
        if not body:
            self.finish(reply)
            return
        self.bytes += len(body)
        if self.failure is None:
            try:
                self.contents.feed(body)
            except (RestoreError, ApiError) as error:
                # Told at the end, as the reference does: until then the sender goes on.
                self.failure = error
                self.contents.drop()
        self.owner.account.publish(reply)

    def finish(self, reply: str) -> None:
        """The sender has sent all."""
        self.close()
        engine = self.restores.engine
        try:
            if self.failure is not None:
                raise self.failure
            if not self.contents.is_whole:
                raise RestoreError("the archive is truncated")
            answer = self.shown()
        except (RestoreError, ApiError) as error:
            self.contents.drop()
            engine.warn(f"Restore failed for stream '{self.where}': {error}")
            refusal = error if isinstance(error, ApiError) else None
            refusal = refusal or errors.STREAM_RESTORE(err=str(error))
            answer = {"type": ANSWER_TYPE, "error": refusal.shown()}
        engine.advisories.restore_complete(
            self.owner.account, self.config.name, self.started_ns, self.bytes, self.asker
        )
        self.owner.account.publish(reply, payload=gojson.encode(answer))

    def shown(self) -> dict[str, Any]:
        """The stream appears: what is told of it."""
        engine, contents = self.restores.engine, self.contents
        store, contents.store = contents.store, None
        assert store is not None
        try:
            stream = engine.adopt(self.owner, self.config, store, contents.created_ns)
        except (ApiError, OSError) as error:
            contents.store = store
            raise RestoreError(str(error)) from error
        for found in contents.consumers:
            consumer = consumers.add(engine, stream, found.config, found.name)
            consumer.reset(found.resume_seq)
        return {"type": ANSWER_TYPE} | stream_info(stream, with_domain=False)

    def tick(self, now_ns: int) -> None:
        due_ns = self._heard_ns + STALL_NS
        if now_ns >= due_ns:
            self.fail(f"restore for stream '{self.where}' is stalled")
        else:
            self.restores.engine.timers.arm(self, due_ns)

    def fail(self, why: str) -> None:
        """Nobody is there to be told."""
        self.restores.engine.warn(why)
        self.close()
        self.contents.drop()

    def close(self) -> None:
        self.armed_ns = None
        self._sub.unsubscribe()
        self.restores.running.discard(self)


class Restores:
    """Those of one server that are on their way."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.running: set[Restore] = set()

    @property
    def is_full(self) -> bool:
        return len(self.running) >= RESTORES_MAX

    def start(self, owner: JetStreamAccount, config: StreamConfig, asker: Asker) -> Restore:
        restore = Restore(self, owner, config, asker)
        self.running.add(restore)
        return restore

    def close(self) -> None:
        for restore in list(self.running):
            restore.close()
            restore.contents.drop()
