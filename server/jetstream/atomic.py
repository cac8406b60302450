"""Atomic batches: messages that are stored together or not at all.

Messages wait here until the commit, in memory: a restart drops open batches, whose publishers never
got a PubAck. A commit stores within one turn, hence within one batch of the disk. What waits is
bounded in batches, messages and bytes; a batch that is silent for too long is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from server.jetstream import answers, errors, headers
from server.jetstream.apierror import ApiError
from server.jetstream.apilevel import beyond_api_level
from server.jetstream.checks import EXPECTED_LAST_ID, REQUEST_INFO, Message, Staged
from server.jetstream.staging import check_staged

if TYPE_CHECKING:
    from server.jetstream.batchlimits import BatchCounts, BatchLimits
    from server.jetstream.publish import Publisher

ATOMIC_ID: Final = b"Nats-Batch-Id"
SEQUENCE: Final = b"Nats-Batch-Sequence"
COMMIT: Final = b"Nats-Batch-Commit"
REQUIRED_LEVEL: Final = b"Nats-Required-Api-Level"
END: Final = b"eob"
ID_BYTES_MAX: Final = 64


@dataclass(slots=True)
class AtomicBatch:
    batch_id: str
    deadline_ns: int
    messages: list[Message] = field(default_factory=list)
    last: int = 0
    bytes: int = 0


class AtomicBatches:
    """The open batches of one stream, the longest silent first."""

    def __init__(self, publisher: Publisher, limits: BatchLimits, counts: BatchCounts) -> None:
        self.publisher = publisher
        self.limits = limits
        self.counts = counts
        self.open: dict[str, AtomicBatch] = {}

    def take(self, message: Message) -> None:
        """One message of a batch; the last one commits. ApiError when it may not be."""
        self.check_message(message)
        batch_id = headers.text(message.headers, ATOMIC_ID)
        if len(headers.encoded(batch_id)) > ID_BYTES_MAX:
            raise errors.ATOMIC_PUBLISH_INVALID_BATCH_ID()
        number = headers.number(headers.value(message.headers, SEQUENCE) or b"")
        if number < 0:
            raise errors.ATOMIC_PUBLISH_MISSING_SEQ()
        commit = headers.value(message.headers, COMMIT)
        batch = self.open.get(batch_id) or self.begin(batch_id, number, commit)
        self.check_place(batch, message, number, commit)
        if commit is None or commit != END:
            self.stage(batch, message)
        if commit is None:
            if not self.publisher.stream.config.no_ack:
                self.publisher.sink.answer(message.reply, b"")
            return
        self.drop(batch)
        self.commit(batch, message.reply, commit == END)

    def check_message(self, message: Message) -> None:
        """What is asked of each message before its batch is looked at."""
        checks = self.publisher.checks
        checks.sealed()
        checks.server_room()
        checks.account_room(message)
        checks.message_size(message)
        if not self.publisher.stream.config.allow_atomic:
            raise errors.ATOMIC_PUBLISH_DISABLED()

    def begin(self, batch_id: str, number: int, commit: bytes | None) -> AtomicBatch:
        if number != 1:
            self.check_length(number, commit)
            raise errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH()
        if (
            len(self.open) >= self.limits.atomic_per_stream_max
            or self.counts.atomic >= self.limits.atomic_total_max
        ):
            raise errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT()
        self.counts.atomic += 1
        batch = self.open[batch_id] = AtomicBatch(batch_id, 0)
        return batch

    def check_length(self, number: int, commit: bytes | None) -> None:
        """The mark of the end is not a message."""
        most = self.limits.atomic_messages_max
        if number - (commit == END) > most:
            raise errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=most)

    def check_place(
        self, batch: AtomicBatch, message: Message, number: int, commit: bytes | None
    ) -> None:
        """The message is the batch's next one; otherwise the batch is over."""
        if commit not in (None, END, b"1"):
            self.drop(batch)
            raise errors.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT()
        level = headers.value(message.headers, REQUIRED_LEVEL)
        if level:
            if beyond_api_level(level):
                self.abandon(batch, "unsupported", errors.REQUIRED_API_LEVEL())
            message.headers = headers.removed(message.headers, REQUIRED_LEVEL)
        batch.last += 1
        if batch.last != number or (number == 1 and commit == END):
            self.abandon(batch, "incomplete", errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH())
        try:
            self.check_length(number, commit)
        except ApiError as error:
            self.abandon(batch, "large", error)
        batch.deadline_ns = self.publisher.sink.now_ns + self.limits.idle_ns
        self.open[batch.batch_id] = self.open.pop(batch.batch_id)

    def stage(self, batch: AtomicBatch, message: Message) -> None:
        size = self.publisher.checks.stored_size(message)
        if self.counts.staged_bytes + size > self.limits.staged_bytes_max:
            self.abandon(batch, "incomplete", errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH())
        self.counts.staged_bytes += size
        batch.bytes += size
        batch.messages.append(message)

    def commit(self, batch: AtomicBatch, reply: bytes, ended: bool) -> None:
        """Check all in order, as it will be stored, then store all."""
        publisher, staged = self.publisher, Staged()
        if ended:
            last = batch.messages[-1]
            last.headers = headers.added(last.headers, COMMIT, b"1")
        for message in batch.messages:
            message.subject = publisher.transformed(message.subject)
            if headers.value(message.headers, EXPECTED_LAST_ID):
                name = EXPECTED_LAST_ID.decode()
                raise errors.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH(header=name)
            message.headers = headers.removed(message.headers, REQUEST_INFO)
            check_staged(publisher.checks, message, staged)
        publisher.checks.server_room()
        publisher.checks.account_room_for(staged.bytes)
        seq = self.keep_all(batch.messages)
        publisher.sink.ack(reply, seq, answers.batch_tail(batch.batch_id, len(batch.messages)))

    def keep_all(self, messages: list[Message]) -> int:
        """Store them as a whole: nothing may stop it any more. The last sequence."""
        publisher, store = self.publisher, self.publisher.stream.store
        before = seq = store.last_seq
        store.begin_whole()
        try:
            for message in messages:
                seq = publisher.store_checked(message)
        except Exception as error:
            if isinstance(error, ApiError) and store.last_seq == before:
                # Nothing is there that would have to go: it costs this batch alone.
                raise
            # What was checked does not fail: the stream stops, and shows nothing of it.
            store.truncate(before)
            raise RuntimeError(f"a batch was not stored to its end: {error!r}") from error
        finally:
            store.end_whole()
        return seq

    def abandon(self, batch: AtomicBatch, reason: str, error: ApiError) -> None:
        self.drop(batch)
        self.tell(batch, reason)
        raise error

    def tell(self, batch: AtomicBatch, reason: str) -> None:
        stream = self.publisher.stream
        body = {
            "account": stream.account.name,
            "stream": stream.name,
            "batch": batch.batch_id,
            "reason": reason,
        }
        stream.engine.advisories.send(
            stream.account,
            f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{stream.name}",
            "stream_batch_abandoned",
            body,
        )

    def drop(self, batch: AtomicBatch) -> None:
        del self.open[batch.batch_id]
        self.counts.atomic -= 1
        self.counts.staged_bytes -= batch.bytes

    def next_ns(self) -> int | None:
        return next((batch.deadline_ns for batch in self.open.values()), None)

    def expire(self, now_ns: int) -> None:
        while self.open:
            batch = next(iter(self.open.values()))
            if batch.deadline_ns > now_ns:
                return
            self.drop(batch)
            self.tell(batch, "timeout")

    def clear(self) -> None:
        for batch in list(self.open.values()):
            self.drop(batch)
