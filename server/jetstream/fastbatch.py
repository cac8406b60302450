"""Fast batches: a stream of publishes whose state is in their reply subject.

`<prefix>.<id>.<flow>.<gap ok|fail>.<seq>.<operation>.$FI`. The server answers with flow messages
every few messages instead of one PubAck for each, and with one PubAck at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.jetstream import answers, errors, gojson, headers
from server.jetstream.apierror import ApiError
from server.jetstream.apilevel import beyond_api_level
from server.jetstream.atomic import ID_BYTES_MAX, REQUIRED_LEVEL
from server.jetstream.checks import REQUEST_INFO, Message, Staged
from server.jetstream.goscan import JsonError
from server.jetstream.staging import DuplicateInBatch, check_staged

if TYPE_CHECKING:
    from server.jetstream.batchlimits import BatchCounts, BatchLimits
    from server.jetstream.publish import Publisher

SUFFIX: Final = ".$FI"
SERVICE_REPLY: Final = b"_R_."
START, APPEND, COMMIT, COMMIT_END, PING = range(5)
FLOW_USUAL: Final = 10
FLOW_MAX: Final = 65_535
ACKS_MAX: Final = 500
SEQ_END: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Step:
    """What a reply subject says."""

    batch_id: str
    flow: int
    gap_ok: bool
    seq: int
    operation: int

    @property
    def commits(self) -> bool:
        return self.operation in (COMMIT, COMMIT_END)


@dataclass(slots=True)
class FastBatch:
    batch_id: str
    gap_ok: bool
    flow_max: int
    deadline_ns: int
    flow: int = 0
    last: int = 0
    """The highest sequence of the batch that was seen."""
    stored: int = 0
    """The highest sequence of the batch that was stored."""
    told: int = 0
    """The sequence of the last flow message."""
    stream_seq: int = 0
    committed: bool = False


def batch_reply(reply: bytes, block: bytes) -> str:
    """The reply subject of a fast batch, perhaps behind a service import; empty if it is none."""
    if reply.endswith(b".$FI") and len(reply) > 4:
        return reply.decode("utf-8", "surrogateescape")
    if not reply.startswith(SERVICE_REPLY):
        return ""
    about = headers.value(block, REQUEST_INFO)
    if about is None:
        return ""
    try:
        found = list(gojson.values(about))
    except JsonError:
        return ""
    original = found[0].get("reply") if len(found) == 1 and isinstance(found[0], dict) else None
    fits = isinstance(original, str) and original.endswith(SUFFIX) and len(original) > 4
    return str(original) if fits else ""


def parse(reply: str) -> Step | None:
    """None when the pattern is not that of a fast batch."""
    tokens = reply[: -len(SUFFIX)].rsplit(".", 5)
    if len(tokens) < 6:
        return None
    _, batch_id, flow_text, gap, seq_text, operation_text = tokens
    operation = headers.wrapped_number(headers.encoded(operation_text))
    seq = headers.number(headers.encoded(seq_text))
    if not START <= operation <= PING or not 0 < seq < SEQ_END or gap not in ("ok", "fail"):
        return None
    first = seq == 1
    if (operation == START) > first or (operation in (APPEND, COMMIT_END) and first):
        return None
    flow = headers.wrapped_number(headers.encoded(flow_text))
    return Step(
        batch_id, min(flow, FLOW_MAX) if flow > 0 else FLOW_USUAL, gap == "ok", seq, operation
    )


class FastBatches:
    """The open fast batches of one stream, the longest silent first."""

    def __init__(self, publisher: Publisher, limits: BatchLimits, counts: BatchCounts) -> None:
        self.publisher = publisher
        self.limits = limits
        self.counts = counts
        self.open: dict[str, FastBatch] = {}

    def hears(self, subject: str, reply: bytes, block: bytes, payload: bytes) -> bool:
        """Whether the message belongs to a fast batch; then it was dealt with."""
        pattern = batch_reply(reply, block)
        if not pattern:
            return False
        message = Message(subject, reply, block, payload)
        try:
            self.take(message, parse(pattern))
        except ApiError as error:
            self.publisher.refuse(reply, error)
        return True

    def take(self, message: Message, step: Step | None) -> None:
        message.subject = self.publisher.transformed(message.subject)
        self.check_message(message)
        if step is None:
            raise errors.BATCH_PUBLISH_INVALID_PATTERN()
        if len(headers.encoded(step.batch_id)) > ID_BYTES_MAX:
            raise errors.BATCH_PUBLISH_INVALID_BATCH_ID()
        batch = self.open.get(step.batch_id) or self.begin(step)
        self.check_level(batch, message)
        if batch.committed and step.operation != PING:
            return  # It takes no more messages: who publishes waits for the PubAck.
        batch.deadline_ns = self.publisher.sink.now_ns + self.limits.idle_ns
        self.open[batch.batch_id] = self.open.pop(batch.batch_id)
        if step.operation == PING:
            self.ping(batch, step, message.reply)
        elif self.in_place(batch, step, message.reply):
            self.store(batch, step, message)

    def check_message(self, message: Message) -> None:
        """What is asked of each message before its batch is looked at."""
        checks = self.publisher.checks
        checks.sealed()
        checks.server_room()
        checks.account_room(message)
        checks.message_size(message)
        if not self.publisher.stream.config.allow_batched:
            raise errors.BATCH_PUBLISH_DISABLED()

    def begin(self, step: Step) -> FastBatch:
        if step.seq != 1:
            raise errors.BATCH_PUBLISH_UNKNOWN_BATCH_ID()
        if (
            len(self.open) >= self.limits.fast_per_stream_max
            or self.counts.fast >= self.limits.fast_total_max
        ):
            raise errors.BATCH_PUBLISH_TOO_MANY_INFLIGHT()
        self.counts.fast += 1
        batch = self.open[step.batch_id] = FastBatch(step.batch_id, step.gap_ok, step.flow, 0)
        batch.flow = min(ACKS_MAX, step.flow) if len(self.open) == 1 else 1
        return batch

    def check_level(self, batch: FastBatch, message: Message) -> None:
        level = headers.value(message.headers, REQUIRED_LEVEL)
        if not level:
            return
        if beyond_api_level(level):
            self.drop(batch)
            raise errors.REQUIRED_API_LEVEL()
        message.headers = headers.removed(message.headers, REQUIRED_LEVEL)

    def ping(self, batch: FastBatch, step: Step, reply: bytes) -> None:
        """Says again how far the batch is; a hole before the ping shows here."""
        if step.seq > batch.last:
            self.answer(reply, answers.flow_gap(batch.last + 1, step.seq + 1))
            if batch.gap_ok:
                batch.last = batch.stored = step.seq
                if self.flow_control(batch, reply):
                    return
            elif self.commit(batch, reply):
                return
        self.send_flow(batch, reply)

    def in_place(self, batch: FastBatch, step: Step, reply: bytes) -> bool:
        """Whether the message is to be stored; holes are told, and end a batch that allows none."""
        batch.last += 1
        if batch.last != step.seq:
            if step.seq > batch.last:
                self.answer(reply, answers.flow_gap(batch.last, step.seq))
            if batch.gap_ok and step.seq > batch.last:
                batch.last = step.seq
            else:
                batch.last -= 1
                self.commit(batch, reply)
                return False
        if step.operation == COMMIT_END:
            batch.last -= 1
            batch.stored = batch.last
            self.commit(batch, reply)
            return False
        if step.operation == COMMIT:
            batch.committed = True
        elif step.seq == 1:
            self.answer(reply, answers.flow_ack(0, batch.flow))
        return True

    def store(self, batch: FastBatch, step: Step, message: Message) -> None:
        publisher = self.publisher
        try:
            check_staged(publisher.checks, message, Staged())
        except DuplicateInBatch as duplicate:
            self.duplicate(batch, step, message.reply, duplicate)
            return
        except ApiError as error:
            self.failed(batch, step, message.reply, error)
            return
        message.headers = headers.removed(message.headers, REQUEST_INFO)
        batch.stream_seq = publisher.keep(message)
        batch.stored = batch.last
        if batch.committed:
            self.finish(batch, message.reply)
        else:
            self.flow_control(batch, message.reply)

    def duplicate(
        self, batch: FastBatch, step: Step, reply: bytes, duplicate: DuplicateInBatch
    ) -> None:
        """Skipped in silence, unless it is all there is."""
        batch.stored = step.seq
        self.flow_control(batch, reply)
        if not step.commits:
            return
        if not step.gap_ok and batch.last == 1:
            self.drop(batch)
            tail = answers.batch_tail(batch.batch_id, step.seq, duplicate=True)
            self.ack(reply, duplicate.seq, tail)
            return
        self.commit(batch, reply)

    def failed(self, batch: FastBatch, step: Step, reply: bytes, error: ApiError) -> None:
        self.publisher.trace_error = error.cause
        if not step.gap_ok and batch.last == 1:
            self.drop(batch)
            self.answer(reply, answers.refusal(self.publisher.stream.name, error))
            return
        self.answer(reply, answers.flow_error(step.seq, error))
        if step.gap_ok and not step.commits:
            return
        batch.last -= 1
        batch.stored = batch.last
        self.commit(batch, reply)

    # Answers

    def flow_control(self, batch: FastBatch, reply: bytes) -> bool:
        """A flow message when enough was stored since the last; the interval goes to its share."""
        if batch.stored < batch.told + batch.flow:
            return False
        batch.told += (batch.stored - batch.told) // batch.flow * batch.flow
        share = min(max(ACKS_MAX // len(self.open), 1), batch.flow_max)
        if batch.flow < share:
            batch.flow = min(batch.flow * 2, share)
        elif batch.flow > share:
            batch.flow = max(batch.flow // 2, share)
        self.send_flow(batch, reply)
        return True

    def send_flow(self, batch: FastBatch, reply: bytes) -> None:
        self.publisher.sink.answer(reply, answers.flow_ack(batch.told, batch.flow))

    def answer(self, reply: bytes, body: bytes) -> None:
        self.publisher.sink.answer(reply, body)

    def ack(self, reply: bytes, seq: int, tail: bytes) -> None:
        body = answers.pub_ack_prefix(self.publisher.stream.name, self.publisher.domain)
        self.publisher.sink.answer(reply, body + str(seq).encode() + tail)

    def commit(self, batch: FastBatch, reply: bytes) -> bool:
        """End the batch with what was stored; whether it is over now."""
        batch.committed = True
        if batch.last != batch.stored:
            return False
        self.finish(batch, reply)
        return True

    def finish(self, batch: FastBatch, reply: bytes) -> None:
        self.drop(batch)
        self.ack(reply, batch.stream_seq, answers.batch_tail(batch.batch_id, batch.last))

    def drop(self, batch: FastBatch) -> None:
        if self.open.pop(batch.batch_id, None) is not None:
            self.counts.fast -= 1

    def next_ns(self) -> int | None:
        return next((batch.deadline_ns for batch in self.open.values()), None)

    def expire(self, now_ns: int) -> None:
        while self.open:
            batch = next(iter(self.open.values()))
            if batch.deadline_ns > now_ns:
                return
            self.drop(batch)

    def clear(self) -> None:
        for batch in list(self.open.values()):
            self.drop(batch)
