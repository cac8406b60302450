"""A stream in the making: the store that an archive fills, and who reads either kind of archive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from server.jetstream import consumer_validate, gojson, headers
from server.jetstream.apierror import ApiError
from server.jetstream.archive import MAGIC, ArchiveError, ArchiveReader, Entry
from server.jetstream.checks import TTL
from server.jetstream.config import StreamConfig
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.goscan import JsonError
from server.jetstream.oldarchive import (
    BlockReader,
    OldRecord,
    Piece,
    RecordKind,
    TarReader,
    resume_seq_of,
)
from server.jetstream.stores import StoreUnavailable
from server.jetstream.ttl import TtlError, ttl_ns, ttl_seconds
from server.wire.s2 import S2Error, S2Reader
from storage.ports import StoreError, StreamStore

if TYPE_CHECKING:
    from server.jetstream.engine import Engine, JetStreamAccount

ENTRY_BYTES_MAX: Final = 8 << 20
CONSUMER_PREFIX: Final = "consumers/"


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


class Making:
    """The store that nobody sees yet, and the consumers that will be there with it."""

    def __init__(self, engine: Engine, owner: JetStreamAccount, config: StreamConfig) -> None:
        self.engine = engine
        self.owner = owner
        self.config = config
        self.created_ns = engine.now_ns()
        self.store: StreamStore | None = None
        self.consumers: list[FoundConsumer] = []

    @property
    def filled(self) -> StreamStore:
        if self.store is None:
            raise RestoreError("the archive does not begin with its stream")
        return self.store

    def open(self, state: ArchivedState) -> None:
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

    def put(self, seq: int, ts_ns: int, subject: bytes, block: bytes, payload: bytes) -> None:
        """A message behind all that are there; what has outlived itself leaves a gap."""
        store = self.filled
        size = len(block) + len(payload)
        if size > self.engine.max_payload:
            raise RestoreError(f"message sequence {seq} exceeds maximum payload size")
        if 0 <= self.config.max_msg_size < size:
            raise RestoreError(f"message sequence {seq} exceeds maximum message size")
        try:
            seconds = ttl_seconds(headers.value(block, TTL) or b"")
        except TtlError as error:
            raise RestoreError(f"failed to parse message TTL: {error}") from error
        is_over = seconds > 0 and ts_ns + ttl_ns(seconds) < self.created_ns
        self.skip_to(seq if is_over else seq - 1)
        if not is_over:
            name = subject.decode("utf-8", "surrogateescape")
            store.store_at(seq, name, block, payload, ts_ns, ttl_ns(seconds))

    def skip_to(self, seq: int) -> None:
        store = self.filled
        if store.last_seq < seq:
            store.skip(seq - store.last_seq)

    def add_consumer(self, name: str, config: bytes, resume_seq: int) -> None:
        try:
            asked = gojson.decode(ConsumerConfig, config, "ConsumerConfig", strict=False)
            limits = consumer_validate.Limits(self.config, self.engine.options, self.owner.limits)
            found = consumer_validate.check_config(asked, limits, False)
        except JsonError as error:
            raise RestoreError(f'failed to decode consumer "{name}" state: {error}') from error
        except ApiError as error:
            raise RestoreError(f'failed to add consumer "{name}": {error}') from error
        self.consumers.append(FoundConsumer(name, found, resume_seq))

    def drop(self) -> None:
        """As if it had never been."""
        store, self.store = self.store, None
        if store is not None:
            self.engine.stores.discard(self.config, store)


class Reader(Protocol):
    @property
    def is_whole(self) -> bool:
        """Its end was there, and nothing was missing before."""

    def feed(self, data: bytes) -> None:
        """Put what is complete with `data` into the store."""


class Expected(Enum):
    STATE = 0
    CONSUMER = 1
    MESSAGE = 2
    NOTHING = 3


class EntryReader:
    """Archives as they are since 2.15."""

    def __init__(self, making: Making) -> None:
        self._making = making
        self._expected = Expected.STATE
        self._state = ArchivedState()
        self._archive = ArchiveReader(max(making.engine.max_payload, ENTRY_BYTES_MAX))

    @property
    def is_whole(self) -> bool:
        return self._expected is Expected.NOTHING

    def feed(self, data: bytes) -> None:
        for entry in self._archive.feed(data):
            match self._expected:
                case Expected.STATE:
                    self._take_state(entry)
                case Expected.CONSUMER:
                    self._take_consumer(entry)
                case Expected.MESSAGE:
                    self._take_message(entry)
            if self._expected is Expected.CONSUMER and (
                len(self._making.consumers) == self._state.consumer_count
            ):
                self._expected = Expected.MESSAGE

    def _take_state(self, entry: Entry) -> None:
        if entry.name != b"state.json":
            raise RestoreError("expected state.json first")
        try:
            self._state = msgspec.json.decode(entry.payload, type=ArchivedState)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RestoreError(f"error in state.json: {error}") from error
        self._making.open(self._state)
        self._expected = Expected.CONSUMER

    def _take_consumer(self, entry: Entry) -> None:
        name = entry.name.decode("utf-8", "replace")
        if not name.startswith(CONSUMER_PREFIX):
            raise RestoreError(f'expected consumer, found "{name}"')
        name = name.removeprefix(CONSUMER_PREFIX)
        try:
            found = msgspec.json.decode(entry.payload, type=ArchivedConsumer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RestoreError(f'failed to decode consumer "{name}" state: {error}') from error
        if bytes(found.config) == b"null" or found.state is None:
            raise RestoreError(f'consumer "{name}" is missing its config or state')
        place = found.state.ack_floor if found.state.pending else found.state.delivered
        self._making.add_consumer(name, bytes(found.config), place.stream_seq + 1)

    def _take_message(self, entry: Entry) -> None:
        if entry.is_end:
            self._expected = Expected.NOTHING
            self._making.skip_to(self._state.last_seq)
        elif entry.seq == 0:
            raise RestoreError("expected message sequence")
        elif entry.seq <= self._making.filled.last_seq:
            raise RestoreError(f"message sequence {entry.seq} out of order")
        else:
            self._making.put(entry.seq, entry.ts_ns, entry.name, entry.headers, entry.payload)


class FilesReader:
    """Archives of earlier versions; `told` is the state that the request repeats."""

    def __init__(self, making: Making, told: ArchivedState) -> None:
        self._making = making
        self._told = told
        self._tar = TarReader()
        self._block = BlockReader()
        self._small = bytearray()
        self._consumer_config = b""

    @property
    def is_whole(self) -> bool:
        return self._tar.ended and self._making.store is not None

    def feed(self, data: bytes) -> None:
        for piece in self._tar.feed(data):
            if piece.name.startswith("msgs/") and piece.name.endswith(".blk"):
                self._take_block(piece)
            elif piece.name == "meta.inf" or piece.name.startswith("obs/"):
                self._small += piece.data
                if len(self._small) > ENTRY_BYTES_MAX:
                    raise RestoreError(f"{piece.name} is too large")
                if piece.is_last:
                    content, self._small = bytes(self._small), bytearray()
                    self._take_file(piece.name, content)
        if self.is_whole:
            self._making.skip_to(self._told.last_seq)
            if self._told.first_seq > 1:
                self._making.filled.compact(self._told.first_seq)

    def _take_block(self, piece: Piece) -> None:
        for record in self._block.feed(piece.data):
            self._take_record(record)
        if piece.is_last and not self._block.is_whole:
            raise RestoreError(f"{piece.name} is damaged")

    def _take_record(self, record: OldRecord) -> None:
        making, store = self._making, self._making.filled
        if record.kind is RecordKind.TOMBSTONE:
            if record.seq <= store.last_seq:
                store.delete(record.seq)
            else:
                making.skip_to(record.seq)
        elif record.seq > store.last_seq:
            if record.kind is RecordKind.ERASED:
                making.skip_to(record.seq)
            else:
                made = (record.subject, record.headers, record.payload)
                making.put(record.seq, record.ts_ns, *made)

    def _take_file(self, name: str, content: bytes) -> None:
        folder, _, kind = name.rpartition("/")
        if name == "meta.inf":
            self._take_stream(content)
        elif folder.startswith("obs/") and kind == "meta.inf":
            self._consumer_config = content
        elif folder.startswith("obs/") and kind == "o.dat":
            self._making.add_consumer(
                folder.removeprefix("obs/"), self._consumer_config, resume_seq_of(content)
            )

    def _take_stream(self, content: bytes) -> None:
        try:
            config = gojson.decode(StreamConfig, content, "StreamConfig", strict=False)
        except JsonError as error:
            raise RestoreError(f"error in meta.inf: {error}") from error
        if config.name != self._making.config.name:
            raise RestoreError("stream names do not match")
        self._making.open(ArchivedState(bytes=self._told.bytes))


class Contents:
    """What came so far of an archive whose kind shows with its first bytes."""

    def __init__(self, making: Making, told: ArchivedState) -> None:
        self._making = making
        self._told = told
        self._frames = S2Reader()
        self._begun = b""
        self._reader: Reader | None = None

    def feed(self, chunk: bytes) -> None:
        """ApiError or RestoreError when this cannot be restored."""
        try:
            for data in self._frames.feed(chunk):
                self._take(data)
        except (S2Error, ArchiveError, StoreError, OSError) as error:
            raise RestoreError(str(error)) from error
        self._making.engine.stores.commit()

    def _take(self, data: bytes) -> None:
        if self._reader is None:
            self._begun += data
            if len(self._begun) < len(MAGIC):
                return
            data = self._begun
            if data.startswith(MAGIC):
                self._reader = EntryReader(self._making)
            else:
                self._reader = FilesReader(self._making, self._told)
        self._reader.feed(data)

    @property
    def is_whole(self) -> bool:
        reader = self._reader
        return reader is not None and reader.is_whole and self._frames.is_between_chunks
