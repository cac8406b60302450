"""DIRECT.GET: messages themselves as answers, without JSON around them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from server.jetstream import gojson, headers
from server.jetstream._directsub import DirectSub
from server.jetstream.api.request import MessageGetRequest
from server.jetstream.apilevel import needs_newer_level
from server.jetstream.goscan import JsonError
from server.jetstream.gotime import store_ns, time_text
from storage.ports import StoredMessage, TooManyResultsError

if TYPE_CHECKING:
    from server.jetstream._ingest import StreamSink
    from server.jetstream.stream import Stream

PREFIX: Final = "$JS.API.DIRECT.GET."
QUEUE: Final = "_sys_"
"""A stream and its mirrors share the requests."""
RESULTS_MAX: Final = 1024
EMPTY_REQUEST: Final = "408 Empty Request"
MALFORMED: Final = "408 Malformed Request"
BAD_REQUEST: Final = "408 Bad Request"
NOT_FOUND: Final = "404 Message Not Found"
NO_RESULTS: Final = "404 No Results"
TOO_MANY_REQUESTS: Final = "429 Too Many Requests"
TOO_MANY: Final = "413 Too Many Results"
LEVEL: Final = "412 Required Api Level"


def unsubscribed(subs: list[DirectSub]) -> list[DirectSub]:
    for sub in subs:
        sub.unsubscribe()
    return []


def size_of(message: StoredMessage) -> int:
    """What counts for `max_bytes`."""
    return len(message.subject) + len(message.headers) + len(message.payload)


class Refused(Exception):
    """A request that is answered with a status line."""


class DirectGet:
    """The two subjects of one stream."""

    def __init__(self, stream: Stream, sink: StreamSink) -> None:
        self.stream = stream
        self.sink = sink
        self._own: list[DirectSub] = []
        self._origins: list[DirectSub] = []

    def configure(self) -> None:
        """Listen exactly while the stream allows it."""
        config = self.stream.config
        if not config.allow_direct:
            self._own = unsubscribed(self._own)
        elif not self._own:
            self._own = self._subscribe(config.name)
        if not config.mirror_direct or config.mirror is None:
            self._origins = unsubscribed(self._origins)

    @property
    def for_origin(self) -> bool:
        return bool(self._origins)

    @property
    def answered_at_once(self) -> int:
        """Requests of the stream's own subjects that never came here."""
        return sum(sub.answered_at_once for sub in self._own)

    def answer_for_origin(self) -> None:
        """A mirror that has nearly all of its origin takes a share of its requests."""
        mirror = self.stream.config.mirror
        if mirror is not None and not self._origins:
            self._origins = self._subscribe(mirror.name)

    def _subscribe(self, name: str) -> list[DirectSub]:
        account, subject = self.stream.account, PREFIX + name
        return [
            DirectSub(account, subject, self.on_request, QUEUE, self.sink),
            DirectSub(account, subject + ".>", self.on_last_request, QUEUE, self.sink),
        ]

    def close(self) -> None:
        self._own = unsubscribed(self._own)
        self._origins = unsubscribed(self._origins)

    def on_request(self, subject: str, reply: str, block: bytes, body: bytes, pattern: str) -> None:
        if reply:
            self.answered(reply, block, body, "")

    def on_last_request(
        self, subject: str, reply: str, block: bytes, body: bytes, pattern: str
    ) -> None:
        if not reply:
            return
        self.answered(reply, block, body, subject[len(PREFIX) :].split(".", 1)[1])

    def answered(self, reply: str, block: bytes, body: bytes, key: str) -> None:
        try:
            if needs_newer_level(block):
                raise Refused(LEVEL)
            asked = self.last_of(body, key) if key else self.any_of(body)
            self.start(asked, reply)
        except Refused as refusal:
            self.status(reply, str(refusal))

    def start(self, asked: MessageGetRequest, reply: str) -> None:
        """One message at once; of many those that come first, the rest in slices."""
        answers = self.answers(asked, reply)
        if not (asked.batch or asked.multi_last):
            next(answers, 0)
            return
        batches = self.stream.engine.direct_batches
        if batches.is_full:
            raise Refused(TOO_MANY_REQUESTS)
        batches.start(self.stream.account, reply, answers)

    def answers(self, asked: MessageGetRequest, reply: str) -> Iterator[int]:
        """Sends a message with each step, the size of which it gives, and at last how it ended."""
        try:
            yield from (self.send_multi if asked.multi_last else self.send)(asked, reply)
        except Refused as refusal:
            self.status(reply, str(refusal))

    # The request

    def decoded(self, body: bytes) -> MessageGetRequest:
        try:
            return gojson.decode_one(MessageGetRequest, body, "JSApiMsgGetRequest")
        except JsonError:
            raise Refused(MALFORMED) from None

    def any_of(self, body: bytes) -> MessageGetRequest:
        if not body:
            raise Refused(EMPTY_REQUEST)
        asked = self.decoded(body)
        timed, last = asked.start_time is not None, bool(asked.last_by_subj)
        if not (asked.seq or last or asked.next_by_subj or asked.multi_last or timed):
            raise Refused(EMPTY_REQUEST)
        if (
            (asked.seq > 0 and (last or timed))
            or (timed and last)
            or (last and (asked.next_by_subj or asked.batch > 0 or asked.multi_last))
            or (asked.next_by_subj and asked.multi_last)
            or (asked.up_to_seq > 0 and asked.up_to_time is not None)
        ):
            raise Refused(BAD_REQUEST)
        return asked

    def last_of(self, body: bytes, key: str) -> MessageGetRequest:
        asked = self.decoded(body) if body else MessageGetRequest()
        if (
            asked.last_by_subj
            or asked.next_by_subj
            or asked.multi_last
            or asked.seq
            or asked.batch
            or asked.start_time is not None
            or asked.up_to_seq
            or asked.up_to_time is not None
        ):
            raise Refused(BAD_REQUEST)
        asked.last_by_subj = key
        return asked

    # The answer

    def status(self, reply: str, text: str, fields: tuple[tuple[bytes, int], ...] = ()) -> None:
        block = b"NATS/1.0 " + text.encode() + b"\r\n"
        for name, number in fields:
            block += b"%b: %d\r\n" % (name, number)
        self.stream.account.publish(reply, headers=block + b"\r\n")

    def shown(self, message: StoredMessage, extra: tuple[tuple[bytes, int], ...] = ()) -> bytes:
        block = (message.headers or headers.EMPTY)[:-2]
        fields = (
            f"Nats-Stream: {self.stream.name}\r\nNats-Subject: {message.subject}\r\n"
            f"Nats-Sequence: {message.seq}\r\nNats-Time-Stamp: {time_text(message.ts_ns)}\r\n"
        )
        block += fields.encode("utf-8", "surrogateescape")
        for name, number in extra:
            block += b"%b: %d\r\n" % (name, number)
        return block + b"\r\n"

    def bytes_max(self, asked: MessageGetRequest) -> int:
        return asked.max_bytes or self.stream.engine.broker.max_pending

    def send(self, asked: MessageGetRequest, reply: str) -> Iterator[int]:
        """One message, or as many as were asked for and an end."""
        stream = self.stream
        seq = asked.seq
        if asked.start_time is not None:
            seq = stream.store.first_seq_from_time(store_ns(asked.start_time))
        pending = self.pending(seq, asked.next_by_subj) if asked.batch else 0
        last = sent_bytes = 0
        for count, message in enumerate(self.messages(asked, seq)):
            if message is None:
                if asked.batch > 1 and count:
                    break
                raise Refused(NOT_FOUND)
            extra: tuple[tuple[bytes, int], ...] = ()
            if asked.batch and not asked.no_hdr:
                pending = max(pending - 1, 0)
                extra = ((b"Nats-Num-Pending", pending), (b"Nats-Last-Sequence", last))
            block = b"" if asked.no_hdr else self.shown(message, extra)
            last = message.seq
            stream.account.publish(reply, headers=block, payload=message.payload)
            yield len(block) + len(message.payload)
            sent_bytes += size_of(message)
            if sent_bytes >= self.bytes_max(asked):
                break
        if asked.batch:
            fields = ((b"Nats-Num-Pending", pending), (b"Nats-Last-Sequence", last))
            self.status(reply, "204 EOB", fields)

    def messages(self, asked: MessageGetRequest, seq: int) -> Iterator[StoredMessage | None]:
        """What a request names, None where it ends."""
        stream = self.stream
        if not (asked.next_by_subj or seq > 0):
            yield stream.last_message(asked.last_by_subj)
            return
        if seq > 0 and not asked.next_by_subj and not asked.batch:
            yield stream.message(seq)
            return
        for _ in range(asked.batch or 1):
            found = None if stream.closed else stream.next_message(seq, asked.next_by_subj)
            yield found
            if found is None:
                return
            seq = found.seq + 1

    def pending(self, seq: int, subject: str) -> int:
        """Messages from `seq` on that match and may be shown."""
        store, durable = self.stream.store, self.stream.durable_seq
        wanted = subject or None
        pending = store.num_pending(seq, wanted)
        if store.last_seq > durable:
            pending -= store.num_pending(durable + 1, wanted)
        return pending

    def send_multi(self, asked: MessageGetRequest, reply: str) -> Iterator[int]:
        """The last message of each subject that matches, by sequence."""
        stream = self.stream
        up_to = self.ceiling(asked)
        visible = min(up_to, stream.durable_seq)
        try:
            found = stream.store.multi_last(asked.multi_last, visible, RESULTS_MAX)
        except TooManyResultsError:
            raise Refused(TOO_MANY) from None
        if not found:
            raise Refused(NO_RESULTS)
        wanted = [seq for seq in found if seq >= asked.seq]
        last = sent_bytes = 0
        pending = len(wanted)
        for count, seq in enumerate(wanted, 1):
            message = None if stream.closed else stream.message(seq)
            if message is None:
                raise Refused(NOT_FOUND)
            pending -= 1
            extra = ((b"Nats-Num-Pending", pending), (b"Nats-Last-Sequence", last))
            block = self.shown(message, extra)
            stream.account.publish(reply, headers=block, payload=message.payload)
            last = seq
            yield len(block) + len(message.payload)
            sent_bytes += size_of(message)
            if sent_bytes >= self.bytes_max(asked) or 0 < asked.batch <= count:
                break
        fields = (
            (b"Nats-Num-Pending", pending),
            (b"Nats-Last-Sequence", last),
            (b"Nats-UpTo-Sequence", up_to),
        )
        self.status(reply, "204 EOB", fields)

    def ceiling(self, asked: MessageGetRequest) -> int:
        """The last sequence that a multi may show."""
        stream = self.stream
        up_to = asked.up_to_seq
        if asked.up_to_time is not None:
            up_to = stream.store.first_seq_from_time(store_ns(asked.up_to_time))
            if up_to <= stream.store.first_seq:
                raise Refused(NO_RESULTS)
            up_to -= 1
        return up_to or stream.durable_seq
