"""The checks of a batch's message: against the stream and against the batch before it."""

from __future__ import annotations

from server.jetstream import errors, headers
from server.jetstream.apierror import ApiError
from server.jetstream.checks import Checks, Message, Staged


class DuplicateInBatch(ApiError):
    """A message id that was seen; `seq` is the sequence it has, 0 inside the same batch."""

    def __init__(self, seq: int) -> None:
        error = errors.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE()
        super().__init__(error.code, error.err_code, error.description)
        self.seq = seq


def check_staged(checks: Checks, message: Message, staged: Staged) -> None:
    """All checks, in the order that batches have; then `staged` counts the message."""
    checks.record_size(message)
    if message.headers:
        checks.header_size(message)
        checks.increment(message)
        checks.expected_stream(message)
        checks.ttl_allowed(message, strict=True)
        checks.ttl(message)
        check_duplicate(checks, message, staged)
        checks.source(message)
    checks.counter(message, staged)
    if message.headers:
        checks.expected_last_seq(message, staged)
        checks.expected_subject_seq(message, staged)
        checks.schedule(message)
        checks.scheduler(message, staged)
        checks.rollup(message, staged)
    stage(checks, message, staged)
    check_room(checks, message, staged)


def check_duplicate(checks: Checks, message: Message, staged: Staged) -> None:
    message_id = message.message_id
    if not message_id:
        return
    if message_id in staged.message_ids:
        raise DuplicateInBatch(0)
    found = checks.duplicate_of(message)
    if found:
        raise DuplicateInBatch(found)
    staged.message_ids.add(message_id)


def stage(checks: Checks, message: Message, staged: Staged) -> None:
    staged.messages += 1
    staged.bytes += checks.stored_size(message)
    staged.counts[message.subject] = staged.counts.get(message.subject, 0) + 1
    staged.schedules[message.subject] = message.due is not None


def check_room(checks: Checks, message: Message, staged: Staged) -> None:
    """A stream that discards new messages refuses a batch that would not fit as a whole."""
    config, store = checks.stream.config, checks.stream.store
    if config.discard != "new":
        return
    if 0 < config.max_msgs < store.messages + staged.messages:
        raise errors.STREAM_STORE_FAILED(err="maximum messages exceeded")
    if 0 < config.max_bytes < store.bytes + staged.bytes:
        raise errors.STREAM_STORE_FAILED(err="maximum bytes exceeded")
    if (
        config.discard_new_per_subject
        and config.max_msgs_per_subject > 0
        and not headers.value(message.headers, b"Nats-Rollup")
    ):
        held = store.filtered_state(message.subject).messages
        if held + staged.counts[message.subject] > config.max_msgs_per_subject:
            raise errors.STREAM_STORE_FAILED(err="maximum messages per subject exceeded")
