"""What a stream asks of its store: the port, the shapes it answers with and the refusals.

Two stores keep it: memory (`storage.memstore`) and file (`storage.filestore`). Times are
nanoseconds since 1970 and always arguments. Sequences start at 1; 0 says "none".
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from storage._seqset import SequenceSet

Filters = str | Sequence[str] | None
"""A subject filter, several, or None for all subjects."""


class Discard(Enum):
    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """-1 or 0: no limit."""

    messages_max: int = -1
    bytes_max: int = -1
    age_max_ns: int = 0
    messages_per_subject_max: int = -1
    discard: Discard = Discard.OLD
    discard_new_per_subject: bool = False
    allow_ttl: bool = False
    marker_ttl_ns: int = 0


@dataclass(frozen=True, slots=True)
class LostData:
    """Messages that were stored and cannot be read any more."""

    sequences: SequenceSet = field(default_factory=SequenceSet)
    bytes: int = 0
    """0: what cannot be read does not tell how large it was."""


@dataclass(frozen=True, slots=True)
class StreamState:
    messages: int
    bytes: int
    first_seq: int
    first_ts_ns: int
    last_seq: int
    last_ts_ns: int
    subject_count: int
    deleted_count: int
    deleted: SequenceSet | None = None
    lost: LostData | None = None


@dataclass(frozen=True, slots=True)
class SubjectState:
    messages: int
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class StoredMessage:
    seq: int
    ts_ns: int
    subject: str
    headers: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Expired:
    """What one slice of `expire` did."""

    messages: int
    more: bool
    """Whether something else is due at the same time."""
    markers: tuple[str, ...] = ()
    """Subjects whose last message went: store a marker for each in the same turn."""


class StoreError(Exception):
    """A request that the store refuses; nothing was changed."""


class MessagesLimitError(StoreError):
    """The stream holds its maximum of messages and discards new ones."""


class BytesLimitError(StoreError):
    """The stream holds its maximum of bytes and discards new messages."""


class SubjectMessagesLimitError(StoreError):
    """The subject holds its maximum of messages and the stream discards new ones."""


class SequenceMismatchError(StoreError):
    """A sequence was named that is not the next one."""


class TooManyResultsError(StoreError):
    """More subjects match than the caller allows."""


class PurgeJob(Protocol):
    """A removal of many messages, done in slices so that nothing waits long."""

    purged: int
    done: bool

    def step(self, messages_max: int) -> bool:
        """Go on; whether all is done."""


class StreamStore(Protocol):
    """One stream's messages. Not for several threads at once."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    subject_count: int

    def store(
        self,
        subject: str,
        headers: builtins.bytes,
        payload: builtins.bytes,
        ts_ns: int,
        ttl_ns: int = 0,
    ) -> int: ...
    def store_at(
        self,
        seq: int,
        subject: str,
        headers: builtins.bytes,
        payload: builtins.bytes,
        ts_ns: int,
        ttl_ns: int = 0,
    ) -> int: ...
    def skip(self, count: int = 1, ts_ns: int = 0) -> int: ...
    def begin_whole(self) -> None:
        """What is written until `end_whole` is there after a crash as a whole or not at all."""

    def end_whole(self) -> None: ...
    def load(self, seq: int) -> StoredMessage | None: ...
    def load_next(self, seq: int, filters: Filters = None) -> StoredMessage | None: ...
    def load_previous(self, seq: int, filters: Filters = None) -> StoredMessage | None: ...
    def load_last(self, filters: Filters = None) -> StoredMessage | None: ...
    def multi_last(
        self, filters: Filters, up_to_seq: int = 0, results_max: int = 0
    ) -> list[int]: ...
    def first_seq_from_time(self, ts_ns: int) -> int: ...
    def last_seq_up_to_time(self, ts_ns: int) -> int: ...
    def delete(self, seq: int, erase: bool = False) -> bool: ...
    def delete_many(self, sequences: Sequence[int]) -> int: ...
    def purge(self, filters: Filters = None, seq: int = 0, keep: int = 0) -> int: ...
    def start_purge(self, filters: Filters = None, seq: int = 0, keep: int = 0) -> PurgeJob: ...
    def compact(self, seq: int) -> int: ...
    def truncate(self, seq: int) -> None: ...
    def set_limits(self, limits: StoreLimits) -> None: ...
    def enforce(self, messages_max: int = 0) -> bool: ...
    def expire(self, now_ns: int, messages_max: int = 4096) -> Expired: ...
    def next_expiry_ns(self) -> int | None: ...
    def state(self, deleted: bool = False, up_to_seq: int | None = None) -> StreamState: ...
    def filtered_state(self, filters: Filters = None, seq: int = 0) -> SubjectState: ...
    def subject_states(
        self, filters: Filters = None, offset: int = 0, limit: int = 0
    ) -> dict[str, SubjectState]: ...
    def subject_totals(
        self, filters: Filters = None, offset: int = 0, limit: int = 0
    ) -> dict[str, int]: ...
    def matching_subjects(self, filters: Filters = None) -> int: ...
    def num_pending(
        self, seq: int, filters: Filters = None, last_per_subject: bool = False
    ) -> int: ...
    def snapshot(self) -> builtins.bytes: ...
