"""A request as it came, the bodies it may have, and what a handler gets and gives."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from msgspec import Struct

from server.core._account import Account
from server.jetstream import errors, gojson
from server.jetstream.config import Placement, StreamConfig
from server.jetstream.gojson import FLAG, INT, TEXT, TEXTS, TIME, UINT64, Nested
from server.jetstream.goscan import JsonError

if TYPE_CHECKING:
    from server.core._client import Client
    from server.jetstream.consumer import Consumer
    from server.jetstream.engine import Engine, JetStreamAccount
    from server.jetstream.stream import Stream

T = TypeVar("T", bound=Struct)
Answer = dict[str, Any]


@dataclass(slots=True)
class Request:
    """`names` are the tokens of the subject that the endpoint leaves open."""

    engine: Engine
    account: Account
    owner: JetStreamAccount | None
    subject: str
    names: list[str]
    reply: str
    headers: bytes
    body: bytes
    client: Client | None = None  # who asks; None: not a client of this server

    @property
    def jetstream(self) -> JetStreamAccount:
        """The account's JetStream; the dispatch has seen to it that there is one."""
        if self.owner is None:
            raise errors.NOT_ENABLED_FOR_ACCOUNT()
        return self.owner

    def decode(self, struct: type[T], go: str) -> T:
        try:
            return gojson.decode(struct, self.body, go)
        except JsonError as error:
            if not self.engine.options.strict:
                return self.decode_loosely(struct, go)
            raise errors.INVALID_JSON(err=error) from error

    def decode_loosely(self, struct: type[T], go: str) -> T:
        """For bodies whose unknown keys are never refused."""
        try:
            return gojson.decode_one(struct, self.body, go)
        except JsonError as error:
            raise errors.INVALID_JSON(err=error) from error

    def optional(self, struct: type[T], go: str) -> T:
        """The body if there is one: only its first character decides."""
        return self.decode(struct, go) if gojson.is_object_or_array(self.body) else struct()

    def demand_body(self) -> None:
        if gojson.is_empty(self.body):
            raise errors.BAD_REQUEST()

    def demand_no_body(self) -> None:
        if not gojson.is_empty(self.body):
            raise errors.NOT_EMPTY_REQUEST()

    def consumer(self) -> Consumer:
        """The consumer that the subject's two names tell."""
        offline = self.jetstream.offline.get(self.names[0])
        if offline is not None and self.names[1] in offline.consumers:
            raise errors.CONSUMER_OFFLINE_REASON(err=offline.consumers[self.names[1]])
        found = self.stream(self.names[0]).consumers.get(self.names[1])
        if found is None:
            raise errors.CONSUMER_NOT_FOUND()
        return found

    def stream(self, name: str) -> Stream:
        found = self.jetstream.streams.get(name)
        if found is None:
            self.jetstream.online(name)
            raise errors.STREAM_NOT_FOUND()
        return found


class Unanswered(Exception):
    """Nobody is there to answer: the requester hears nothing."""


# A generator where the answer is long: it may be interrupted at each yield.
Handler = Callable[[Request], Answer | Generator[None, None, Answer]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API subject. `words` are its fixed tokens, `names` how many free ones follow."""

    words: tuple[str, ...]
    names: int
    kind: str  # the answer's type, without its prefix
    handler: Handler
    # What stands in an error answer beside the error.
    on_error: Answer = field(default_factory=dict)
    # Needs a cluster whatever else is wrong with the request.
    clustered: bool = False
    # What it takes away must be gone for good before that is said.
    lasting: bool = False
    # Only asks: it comes behind requests that change something.
    info: bool = False
    # Success is neither counted nor told to auditors.
    silent: bool = False
    # The body is judged before it matters whether the account has JetStream.
    body_first: bool = False
    # Neither counted nor told to auditors, whatever comes of it.
    unseen: bool = False
    more_names: bool = False  # further tokens may follow


class Paged(Struct):
    offset: Annotated[int, INT] = 0


class StreamsRequest(Paged):
    subject: Annotated[str, TEXT] = ""


class StreamInfoRequest(Paged):
    deleted_details: Annotated[bool, FLAG] = False
    subjects_filter: Annotated[str, TEXT] = ""


class PurgeRequest(Struct):
    seq: Annotated[int, UINT64] = 0
    filter: Annotated[str, TEXT] = ""
    keep: Annotated[int, UINT64] = 0


class MessageDeleteRequest(Struct):
    seq: Annotated[int, UINT64] = 0
    no_erase: Annotated[bool, FLAG] = False


class MessageGetRequest(Struct):
    seq: Annotated[int, UINT64] = 0
    last_by_subj: Annotated[str, TEXT] = ""
    next_by_subj: Annotated[str, TEXT] = ""
    batch: Annotated[int, INT] = 0
    max_bytes: Annotated[int, INT] = 0
    start_time: Annotated[str | None, TIME] = None
    multi_last: Annotated[list[str], TEXTS] = []
    up_to_seq: Annotated[int, UINT64] = 0
    up_to_time: Annotated[str | None, TIME] = None
    no_hdr: Annotated[bool, FLAG] = False


class SnapshotRequest(Struct):
    deliver_subject: Annotated[str, TEXT] = ""
    no_consumers: Annotated[bool, FLAG] = False
    chunk_size: Annotated[int, INT] = 0
    window_size: Annotated[int, INT] = 0
    jsck: Annotated[bool, FLAG] = False


class StepDownRequest(Struct):
    placement: Annotated[Placement | None, Nested(Placement, "Placement")] = None


class UnpinRequest(Struct):
    group: Annotated[str, TEXT] = ""


class ResetRequest(Struct):
    seq: Annotated[int, UINT64] = 0


class PauseRequest(Struct):
    pause_until: Annotated[str | None, TIME] = None


class Anything(gojson.Kind):
    """What is not looked at."""

    def take(self, value: Any, path: str, old: Any, report: gojson.Report, strict: bool) -> Any:
        return None


ANYTHING: Final = Anything("")


class ToldState(Struct):
    """A snapshot's state: the archive tells the same, this is only checked for its shape."""

    messages: Annotated[int, UINT64] = 0
    bytes: Annotated[int, UINT64] = 0
    first_seq: Annotated[int, UINT64] = 0
    first_ts: Annotated[str | None, TIME] = None
    last_seq: Annotated[int, UINT64] = 0
    last_ts: Annotated[str | None, TIME] = None
    num_subjects: Annotated[int, INT] = 0
    subjects: Annotated[None, ANYTHING] = None
    num_deleted: Annotated[int, INT] = 0
    deleted: Annotated[None, ANYTHING] = None
    lost: Annotated[None, ANYTHING] = None
    consumer_count: Annotated[int, INT] = 0


class RestoreRequest(Struct):
    config: Annotated[StreamConfig | None, Nested(StreamConfig, "StreamConfig")] = None
    state: Annotated[ToldState | None, Nested(ToldState, "StreamState")] = None
