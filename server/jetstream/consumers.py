"""The life of a stream's consumers: made, changed, paused, found again at the start, removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.jetstream import consumer_validate as rules
from server.jetstream import errors
from server.jetstream.advisory import ID_DIGITS
from server.jetstream.consumer import Consumer, is_kept
from server.jetstream.consumer_config import (
    ZERO_NS,
    ConsumerConfig,
    adopt_required_level,
    set_required_level,
)
from server.jetstream.gotime import time_ns, time_text

if TYPE_CHECKING:
    from server.jetstream.config import StreamConfig
    from server.jetstream.engine import Engine, JetStreamAccount
    from server.jetstream.stream import Stream

NAME_LENGTH: Final = 8
JITTER_MIN_NS: Final = 100_000_000
JITTER_NS: Final = 900_000_000
# A consumer in use is looked at this many times in its threshold.
LOOKS: Final = 2


def limits_of(engine: Engine, owner: JetStreamAccount, stream: Stream) -> rules.Limits:
    return rules.Limits(stream.config, engine.options, owner.limits)


def create(
    engine: Engine,
    owner: JetStreamAccount,
    stream: Stream,
    asked: ConsumerConfig,
    action: str,
    pedantic: bool,
) -> Consumer:
    """A new consumer, or the one of that name with this configuration. ApiError if not allowed."""
    config = rules.check_config(asked, limits_of(engine, owner, stream), pedantic)
    name = config.durable_name or config.name
    known = stream.consumers.get(name)
    if known is not None:
        if action == "create" and not is_same(config, known.config):
            raise errors.CONSUMER_ALREADY_EXISTS()
        others = configs(stream)
        is_queue = stream.config.retention == "workqueue"
        if is_queue and not rules.is_partition(config, name, others):
            raise errors.CONSUMER_WQ_CONSUMER_NOT_UNIQUE()
        update(engine, stream, known, config)
        return known
    if action == "update":
        raise errors.CONSUMER_DOES_NOT_EXIST()
    check_room(owner, stream)
    if stream.config.retention == "workqueue" and rules.is_limited(config):
        rules.check_work_queue(config, name, configs(stream))
    rules.check_durable_length(config)
    rules.fill_threshold(config)
    return add(engine, stream, config, name or fresh_name(engine, stream))


def configs(stream: Stream) -> list[tuple[str, ConsumerConfig]]:
    return [(name, consumer.config) for name, consumer in stream.consumers.items()]


def is_same(config: ConsumerConfig, stored: ConsumerConfig) -> bool:
    compared = config.copy()
    adopt_required_level(compared, stored)
    return compared == stored


def check_room(owner: JetStreamAccount, stream: Stream) -> None:
    most = stream.config.max_consumers
    of_account = owner.limits.max_consumers
    if most <= 0 or 0 < of_account < most:
        most = of_account
    if most <= 0:
        return
    there = sum(1 for _, config in configs(stream) if rules.is_limited(config))
    if most <= there:
        raise errors.MAXIMUM_CONSUMERS_LIMIT()


def check_limits(stream: Stream, config: StreamConfig) -> None:
    """Limits for consumers that a stream gets must suit those that it has."""
    old, new = stream.config.consumer_limits, config.consumer_limits
    threshold_ns, pending = new.inactive_threshold, new.max_ack_pending
    if (not threshold_ns or threshold_ns == old.inactive_threshold) and (
        not pending or pending == old.max_ack_pending
    ):
        return
    beyond = [
        name
        for name, known in sorted(stream.consumers.items())
        if 0 < threshold_ns < known.config.inactive_threshold
        or 0 < pending < known.config.max_ack_pending
    ]
    if beyond:
        raise errors.STREAM_UPDATE(err=f"change to limits violates consumers: {', '.join(beyond)}")


def fresh_name(engine: Engine, stream: Stream) -> str:
    while True:
        digits = (ID_DIGITS[engine.random_below(len(ID_DIGITS))] for _ in range(NAME_LENGTH))
        name = "".join(digits)
        if name not in stream.consumers:
            return name


def add(engine: Engine, stream: Stream, config: ConsumerConfig, name: str) -> Consumer:
    created_ns = engine.now_ns()
    consumer = Consumer(stream, config, name, created_ns)
    keep(engine, consumer)
    stream.consumers[name] = consumer
    consumer.start()
    watch(engine, consumer)
    engine.hub.keep_all()
    engine.advisories.consumer_action(consumer, "CREATED", "create")
    return consumer


def keep(engine: Engine, consumer: Consumer) -> None:
    if is_kept(consumer.config):
        stream = consumer.stream
        try:
            engine.stores.save_consumer(
                stream.account.name,
                stream.name,
                consumer.name,
                consumer.config,
                consumer.created_ns,
            )
        except OSError as error:
            where = f"{stream.account.name} > {stream.name} > {consumer.name}"
            engine.warn(f"Consumer create failed for '{where}': {error}")
            raise errors.CONSUMER_STORE_FAILED(err=error) from error


def update(engine: Engine, stream: Stream, consumer: Consumer, config: ConsumerConfig) -> None:
    """Other settings for a consumer that lives; `config` is whole but for these rules."""
    rules.check_update(consumer.config, config, stream.account.has_interest)
    rules.fill_threshold(config)
    apply(engine, consumer, config)


def apply(engine: Engine, consumer: Consumer, config: ConsumerConfig) -> None:
    old = consumer.config
    if old == config:
        return
    if config.pause_until is not None:
        config.pause_until = time_text(time_ns(config.pause_until))
    consumer.config = config
    try:
        keep(engine, consumer)
    finally:
        consumer.config = old
    consumer.update(config)
    if old.inactive_threshold != config.inactive_threshold:
        watch(engine, consumer)
    if old.pause_until_ns != config.pause_until_ns:
        consumer.pause_until(config.pause_until_ns)
        engine.advisories.consumer_pause(consumer)


def pause(engine: Engine, consumer: Consumer, until: str | None) -> int:
    """Delivers nothing before `until`, or goes on when there is none; the time, 0 if none."""
    config = consumer.config.copy()
    until_ns = time_ns(until) if until is not None else ZERO_NS
    config.pause_until = time_text(until_ns) if until_ns != ZERO_NS else None
    set_required_level(config)
    apply(engine, consumer, config)
    return config.pause_until_ns


def delete(engine: Engine, consumer: Consumer) -> None:
    stream = consumer.stream
    del stream.consumers[consumer.name]
    consumer.stop("deleted")
    engine.stores.remove_consumers(stream.account.name, stream.name, [consumer.name])
    stream.remove_unwanted(consumer.core.floor_seq)
    engine.advisories.consumer_action(consumer, "DELETED", "delete")


def delete_all(engine: Engine, stream: Stream) -> None:
    """The stream is about to be deleted."""
    gone = list(stream.consumers.values())
    stream.consumers.clear()
    engine.stores.remove_consumers(stream.account.name, stream.name, [c.name for c in gone])
    for consumer in gone:
        consumer.stop("stream")
        engine.advisories.consumer_action(consumer, "DELETED", "delete")


def recover(engine: Engine, stream: Stream) -> None:
    """Brings back the consumers that are kept beside the stream."""
    for kept in engine.stores.consumers(stream.account.name, stream.name):
        consumer = Consumer(stream, kept.config, kept.name, kept.created_ns)
        stream.consumers[kept.name] = consumer
        consumer.start()
        watch(engine, consumer)
    stream.remove_unwanted(0)


# Consumers that nobody uses


class Watch:
    """Removes a consumer that was of no use for its threshold."""

    def __init__(self, engine: Engine, consumer: Consumer, threshold_ns: int) -> None:
        self.armed_ns: int | None = None
        self._engine = engine
        self._consumer = consumer
        self._threshold_ns = threshold_ns
        self._configured_ns = consumer.config.inactive_threshold
        self._used_ns = engine.now_ns()

    def tick(self, now_ns: int) -> None:
        consumer = self._consumer
        if consumer.closed or consumer.config.inactive_threshold != self._configured_ns:
            return
        self._used_ns = max(self._used_ns, consumer.last_used_ns(now_ns))
        due_ns = self._used_ns + self._threshold_ns
        if now_ns >= due_ns:
            delete(self._engine, consumer)
        else:
            soon_ns = now_ns + self._threshold_ns // LOOKS
            self._engine.timers.arm(self, min(due_ns, soon_ns) if consumer.is_active else due_ns)

    def start(self) -> None:
        self._engine.timers.arm(self, self._used_ns + self._threshold_ns)


def watch(engine: Engine, consumer: Consumer) -> None:
    threshold_ns = consumer.config.inactive_threshold
    if threshold_ns <= 0:
        return
    if not consumer.config.is_push:
        threshold_ns += JITTER_MIN_NS + engine.random_below(JITTER_NS)
    Watch(engine, consumer, threshold_ns).start()
