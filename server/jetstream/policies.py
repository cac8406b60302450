"""What a consumer's configuration asks for beside delivery, as a flow of its core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.core._account import PySub
from server.jetstream import deadletter
from server.jetstream import headers as blocks
from server.jetstream._policies import CommonFlow, GroupFlow, PushFlow
from server.jetstream.acks import ack_place
from server.jetstream.consumer_config import ConsumerConfig

if TYPE_CHECKING:
    from server.jetstream.consumer import Consumer

LAST_CONSUMER = b"Nats-Last-Consumer"
LAST_STREAM = b"Nats-Last-Stream"
SAMPLE_ALL = 100
TIME_MAX_NS = 2**63 - 1


def sample_percent(config: ConsumerConfig) -> int:
    """Of its acknowledgements; the text was checked when the consumer was made."""
    text = config.sample_freq.removesuffix("%")
    return min(max(int(text), 0), SAMPLE_ALL) if text else 0


def needs_flow(config: ConsumerConfig) -> bool:
    if config.is_push and (config.idle_heartbeat or config.flow_control or config.rate_limit_bps):
        return True
    if config.priority_policy in ("overflow", "pinned_client"):
        return True
    return bool(
        config.pause_until_ns > 0
        or sample_percent(config)
        or deadletter.subject_of(config) is not None
    )


class Policies:
    """Keeps the flow of one consumer in step with its configuration."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._answers: list[PySub] = []
        """In the short form and in that with the domain and the account."""

    def settle(self) -> None:
        """Follow the configuration; a flow that is there stays with what it knows."""
        consumer = self._consumer
        config, core = consumer.config, consumer.core
        flow = core.flow
        if flow is None:
            if not needs_flow(config):
                return
            flow = core.flow = self._made(config)
        assert isinstance(flow, CommonFlow)
        flow.sample_percent = sample_percent(config)
        letters = deadletter.DeadLetters.of(consumer)
        flow.on_dead = letters.publish if letters is not None else None
        if isinstance(flow, PushFlow):
            flow.configure(config, self._burst())
            self._hear_answers(config)
        elif isinstance(flow, GroupFlow):
            flow.configure(config)
        # Clients send the zero time for none, which is before all times that have a number.
        flow.pause_until(min(max(config.pause_until_ns, 0), TIME_MAX_NS))

    def _made(self, config: ConsumerConfig) -> CommonFlow:
        consumer = self._consumer
        advisories = consumer.stream.engine.advisories
        flow = (PushFlow if config.is_push else GroupFlow)(consumer.core)
        flow.on_resumed = lambda: advisories.consumer_pause(consumer)
        flow.on_sampled = lambda *sample: advisories.consumer_ack(consumer, *sample)
        if isinstance(flow, GroupFlow):
            flow.new_pin = advisories.event_id
            flow.on_pinned = lambda *pin: advisories.consumer_pinned(consumer, *pin)
            flow.on_unpinned = lambda *pin: advisories.consumer_unpinned(consumer, *pin)
        return flow

    def _burst(self) -> int:
        stream = self._consumer.stream
        most = stream.config.max_msg_size
        return most if most > 0 else stream.engine.broker.max_payload

    # Answers to flow control

    def _hear_answers(self, config: ConsumerConfig) -> None:
        if not config.flow_control or self._answers:
            return
        stream = self._consumer.stream
        place = ack_place(stream.engine.domain, stream.account.name).decode()
        key = f"{stream.name}.{self._consumer.name}.*"
        self._answers = [
            stream.account.subscribe(f"$JS.FC.{form}", self._answered)
            for form in (key, f"{place}.{key}")
        ]

    def _answered(
        self, subject: str, reply: str, headers: bytes, payload: bytes, heard: str
    ) -> None:
        flow = self._consumer.core.flow
        if isinstance(flow, PushFlow) and not self._consumer.closed:
            places = (number(blocks.value(headers, name)) for name in (LAST_CONSUMER, LAST_STREAM))
            flow.answered(subject.encode(), *places)

    def close(self) -> None:
        while self._answers:
            self._answers.pop().unsubscribe()


def number(text: bytes | None) -> int:
    """What a header says; 0 where it says nothing of use."""
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else 0
