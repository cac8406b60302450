"""Where a copier's messages come from: the origin's store itself, or a consumer of the origin.

A stream that keeps messages only until they are consumed needs a consumer that holds them until the
copy is on disk: it is durable, listed like any other, and acknowledged by flow control.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from config.limits import SECOND_NS
from server.jetstream import consumers, headers
from server.jetstream.advisory import ID_DIGITS
from server.jetstream.consumer import starting_seq
from server.jetstream.consumer_config import ConsumerConfig, set_required_level
from storage.ports import StoredMessage

if TYPE_CHECKING:
    from server.jetstream.consumer import Consumer
    from server.jetstream.stream import Stream

KEPT_FOR_CONSUMERS: Final = ("interest", "workqueue")
TOKEN_LENGTH: Final = 8
HEARTBEAT_NS: Final = SECOND_NS
CONTROL: Final = b"NATS/1.0 100 "
STALLED: Final = b"Nats-Consumer-Stalled"
ACK_TOKENS: Final = 9


class Supply(Protocol):
    """Hands out the origin's messages in order."""

    delivered_seq: int
    """All up to here was dealt with before this began."""

    @property
    def is_over(self) -> bool:
        """It will never hand out anything again: connect anew."""

    def next(self, position: int) -> StoredMessage | None:
        """The first message behind `position`; None: there is none yet."""

    def waiting(self, position: int) -> int:
        """How many are left behind `position`."""

    def refused(self) -> None:
        """The target does not take what was handed out last; it will be asked for again."""

    def on_target_durable(self, last: int) -> None:
        """The target has all up to `last` on disk."""

    def close(self) -> None: ...


class StoreSupply:
    """Reads the origin's store up to what is durable there."""

    def __init__(
        self,
        origin: Stream,
        start: ConsumerConfig,
        filters: list[str] | None,
        wake: Callable[[], None],
    ) -> None:
        self.delivered_seq = starting_seq(origin, start) - 1
        self._origin = origin
        self._filters = filters
        self._wake = wake
        origin.interest.append(self._on_durable)

    @property
    def is_over(self) -> bool:
        return self._origin.config.retention in KEPT_FOR_CONSUMERS

    def _on_durable(self, first: int, last: int) -> None:
        self._wake()

    def next(self, position: int) -> StoredMessage | None:
        found = self._origin.store.load_next(position + 1, self._filters)
        return found if found is not None and found.seq <= self._origin.durable_seq else None

    def waiting(self, position: int) -> int:
        return self._origin.store.num_pending(position + 1, self._filters)

    def refused(self) -> None:
        """It stays where it is."""

    def on_target_durable(self, last: int) -> None:
        """The origin does not ask."""

    def close(self) -> None:
        self._origin.interest.remove(self._on_durable)


@dataclass(frozen=True, slots=True)
class Delivered:
    consumer_seq: int
    message: StoredMessage


@dataclass(frozen=True, slots=True)
class Question:
    """How far is the receiver? The answer goes to `reply`."""

    reply: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What was taken, told when the target has all up to `gate_seq` on disk."""

    reply: str
    gate_seq: int
    consumer_seq: int
    seq: int


class ConsumerSupply:
    """Takes what a push consumer of the origin delivers.

    The consumer's flow control bounds what waits here, its largest number of pending messages what
    waits for a target that refuses: then a question is answered although messages wait before it.
    """

    def __init__(
        self, target: Stream, consumer: Consumer, subject: str, wake: Callable[[], None]
    ) -> None:
        self.delivered_seq = consumer.info().delivered.stream_seq
        self._target = target
        self._consumer = consumer
        self._wake = wake
        self._waiting: deque[Delivered | Question] = deque()
        self._answers: deque[Answer] = deque()
        self._taken = (0, self.delivered_seq)
        self._sub = target.account.subscribe(subject, self._hear)

    @property
    def is_over(self) -> bool:
        return self._consumer.closed

    def _hear(self, subject: str, reply: str, block: bytes, payload: bytes, _: str) -> None:
        if not payload and block.startswith(CONTROL):
            self._hear_control(reply or headers.text(block, STALLED))
            return
        tokens = reply.split(".")
        at = 5 if len(tokens) > ACK_TOKENS else 3
        if len(tokens) < ACK_TOKENS or tokens[at] != self._consumer.name:
            return
        seq, consumer_seq, ts_ns = (int(token) for token in tokens[at + 2 : at + 5])
        message = StoredMessage(seq, ts_ns, subject, block, payload)
        self._waiting.append(Delivered(consumer_seq, message))
        self._wake()

    def _hear_control(self, asked: str) -> None:
        """A heartbeat repeats a question that was not answered yet."""
        known = {each.reply for each in self._waiting if isinstance(each, Question)}
        known.update(answer.reply for answer in self._answers)
        if asked and asked not in known:
            self._waiting.append(Question(asked))
            self._wake()

    def next(self, position: int) -> StoredMessage | None:
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, Question):
                self._answer(first)
            elif first.message.seq > position:
                return first.message
            else:
                self._taken = first.consumer_seq, first.message.seq
            self._waiting.popleft()
        return None

    def refused(self) -> None:
        questions = [each for each in self._waiting if isinstance(each, Question)]
        self._waiting = deque(each for each in self._waiting if isinstance(each, Delivered))
        for question in questions:
            self._answer(question)

    def _answer(self, question: Question) -> None:
        gate_seq = self._target.store.last_seq
        self._answers.append(Answer(question.reply, gate_seq, *self._taken))
        self.on_target_durable(self._target.durable_seq)

    def waiting(self, position: int) -> int:
        messages = sum(1 for each in self._waiting if isinstance(each, Delivered))
        return self._consumer.info().num_pending + messages

    def on_target_durable(self, last: int) -> None:
        while self._answers and self._answers[0].gate_seq <= last:
            answer = self._answers.popleft()
            block = b"NATS/1.0\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n\r\n"
            self._target.account.publish(
                answer.reply, headers=block % (answer.consumer_seq, answer.seq)
            )

    def close(self) -> None:
        self._sub.unsubscribe()


def holding_consumer(
    origin: Stream, name: str, start: ConsumerConfig, about: dict[str, str], letter: str
) -> Consumer:
    """The durable consumer that keeps what was not copied; ApiError when there may be none.

    One that is there already goes on behind what was acknowledged.
    """
    engine = origin.engine
    config = ConsumerConfig(
        durable_name=name,
        name=name,
        deliver_subject=f"$JS.{letter}.{token(origin)}",
        deliver_policy=start.deliver_policy,
        opt_start_seq=start.opt_start_seq,
        opt_start_time=start.opt_start_time,
        ack_policy="flow_control",
        idle_heartbeat=HEARTBEAT_NS,
        flow_control=True,
        sourcing=True,
        metadata=about,
    )
    if len(start.filter_subjects) == 1:
        config.filter_subject = start.filter_subjects[0]
    else:
        config.filter_subjects = start.filter_subjects
    known = origin.consumers.get(name)
    if known is not None:
        config.deliver_policy = known.config.deliver_policy
        config.opt_start_seq = known.config.opt_start_seq
        config.opt_start_time = known.config.opt_start_time
    set_required_level(config)
    owner = engine.accounts[origin.account.name]
    consumer = consumers.create(engine, owner, origin, config, "", False)
    consumer.reset(0)
    return consumer


def token(stream: Stream) -> str:
    below = stream.engine.random_below
    return "".join(ID_DIGITS[below(len(ID_DIGITS))] for _ in range(TOKEN_LENGTH))
