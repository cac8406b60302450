"""Dead letters: where a consumer gives up on a message, the message goes to a subject of its own.

The subject stands in the consumer's metadata. What is published is the message with its headers and
lines that say why; it leaves in the same phase as the event that tells of it, before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.core.subject import is_valid_literal, matches
from server.jetstream import errors, headers
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.gotime import time_text

if TYPE_CHECKING:
    from server.jetstream.consumer import Consumer

METADATA_KEY: Final = "martlet.dead_letter_subject"
PREFIX: Final = "Martlet-Dead-Letter-"
# Headers that a stream acts upon: they were meant for the first one.
ACTED_UPON: Final = (
    b"nats-expected-",
    b"nats-msg-id",
    b"nats-rollup",
    b"nats-ttl",
    b"nats-incr",
    b"nats-schedule",
    b"nats-batch-",
    b"nats-required-api-level",
)


def subject_of(config: ConsumerConfig) -> str | None:
    """Where the consumer's dead letters go; None: it has none."""
    return (config.metadata or {}).get(METADATA_KEY)


def check(config: ConsumerConfig, stream_subjects: list[str]) -> None:
    """ApiError where the subject cannot be published to, or would come back to this consumer."""
    subject = subject_of(config)
    if subject is None:
        return
    if not is_valid_literal(subject):
        raise errors.CONSUMER_INVALID_POLICY(
            err=f"{METADATA_KEY} '{subject}' is not a subject without wildcards"
        )
    captured = any(matches(subject, each) for each in stream_subjects)
    heard = not config.filters or any(matches(subject, each) for each in config.filters)
    if captured and heard:
        raise errors.CONSUMER_INVALID_POLICY(
            err=f"{METADATA_KEY} '{subject}' is delivered to the same consumer"
        )


class DeadLetters:
    """Publishes the dead letters of one consumer."""

    def __init__(self, consumer: Consumer, subject: str) -> None:
        self._consumer = consumer
        self._subject = subject

    @classmethod
    def of(cls, consumer: Consumer) -> DeadLetters | None:
        subject = subject_of(consumer.config)
        return cls(consumer, subject) if subject is not None else None

    def publish(
        self,
        subject: bytes,
        block: bytes,
        payload: bytes,
        seq: int,
        stored_ns: int,
        deliveries: int,
        why: str,
        reason: str,
    ) -> None:
        consumer = self._consumer
        stream = consumer.stream.name
        lines = {
            "Reason": why,
            "Description": " ".join(reason.split()),
            "Stream": stream,
            "Consumer": consumer.name,
            "Subject": subject.decode("utf-8", "surrogateescape"),
            "Sequence": str(seq),
            "Deliveries": str(deliveries),
            "Time": time_text(stored_ns),
        }
        added = "".join(f"{PREFIX}{key}: {value}\r\n" for key, value in lines.items() if value)
        # A crash may make the consumer give up twice: the second copy is a duplicate.
        identity = f"Nats-Msg-Id: {stream}.{consumer.name}.{consumer.created_ns}.{seq}\r\n"
        told = (added + identity + "\r\n").encode("utf-8", "surrogateescape")
        consumer.stream.account.publish(
            self._subject, headers=kept_lines(block) + told, payload=payload
        )


def kept_lines(block: bytes) -> bytes:
    """A block's lines without its end, and without those that a stream would act upon."""
    lines = block.split(b"\r\n")[1:]
    kept = [line for line in lines if line and not line.lower().startswith(ACTED_UPON)]
    return headers.LINE + b"".join(line + b"\r\n" for line in kept)
