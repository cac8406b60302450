"""What a consumer is made from. Names and their order are those of the wire, so that an answer
shows a configuration exactly as the reference does; times are nanoseconds, sizes bytes."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Struct
from msgspec.structs import fields, replace

from server.jetstream.gojson import (
    DURATION,
    FLAG,
    INT,
    TEXT,
    TEXT_MAP,
    TEXTS,
    TIME,
    UINT64,
    Choice,
    ListOf,
    Nested,
    Report,
    compact,
)
from server.jetstream.gotime import time_ns

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
ANSWER_KEYS: Final = ("_nats.ver", "_nats.level")


class Named(Choice):
    """A word whose refusal says what it was to be."""

    def __init__(self, title: str, words: dict[str, str]) -> None:
        super().__init__(other=words)
        self.title = title

    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if isinstance(value, str) and value in self.words:
            return self.words[value]
        report(f"unknown {self.title}: {compact(value)}")
        return old


DELIVER = Choice(
    "all",
    "last",
    "new",
    "by_start_sequence",
    "by_start_time",
    "last_per_subject",
    other={"undefined": "all"},
)
ACK = Choice("none", "all", "explicit", "flow_control")
REPLAY = Choice("instant", "original")
PRIORITY = Named(
    "priority policy",
    {word: word for word in ("none", "overflow", "pinned_client", "prioritized")},
)
ACTION = Named("consumer action", {"create": "create", "update": "update", "": ""})


class ConsumerConfig(Struct):
    """One consumer's configuration; defaults are filled in by `consumer_validate.fill_defaults`."""

    durable_name: Annotated[str, TEXT] = ""
    name: Annotated[str, TEXT] = ""
    description: Annotated[str, TEXT] = ""
    deliver_policy: Annotated[str, DELIVER] = "all"
    opt_start_seq: Annotated[int, UINT64] = 0
    opt_start_time: Annotated[str | None, TIME] = None
    ack_policy: Annotated[str, ACK] = "none"
    ack_wait: Annotated[int, DURATION] = 0
    max_deliver: Annotated[int, INT] = 0
    backoff: Annotated[list[int], ListOf(DURATION, "[]time.Duration")] = []
    filter_subject: Annotated[str, TEXT] = ""
    filter_subjects: Annotated[list[str], TEXTS] = []
    replay_policy: Annotated[str, REPLAY] = "instant"
    rate_limit_bps: Annotated[int, UINT64] = 0
    sample_freq: Annotated[str, TEXT] = ""
    max_waiting: Annotated[int, INT] = 0
    max_ack_pending: Annotated[int, INT] = 0
    flow_control: Annotated[bool, FLAG] = False
    headers_only: Annotated[bool, FLAG] = False
    max_batch: Annotated[int, INT] = 0
    max_expires: Annotated[int, DURATION] = 0
    max_bytes: Annotated[int, INT] = 0
    deliver_subject: Annotated[str, TEXT] = ""
    deliver_group: Annotated[str, TEXT] = ""
    idle_heartbeat: Annotated[int, DURATION] = 0
    inactive_threshold: Annotated[int, DURATION] = 0
    num_replicas: Annotated[int, INT] = 0
    mem_storage: Annotated[bool, FLAG] = False
    direct: Annotated[bool, FLAG] = False
    sourcing: Annotated[bool, FLAG] = False
    metadata: Annotated[dict[str, str] | None, TEXT_MAP] = None
    pause_until: Annotated[str | None, TIME] = None
    priority_groups: Annotated[list[str], TEXTS] = []
    priority_policy: Annotated[str, PRIORITY] = "none"
    priority_timeout: Annotated[int, DURATION] = 0

    def copy(self) -> ConsumerConfig:
        return replace(
            self,
            backoff=list(self.backoff),
            filter_subjects=list(self.filter_subjects),
            priority_groups=list(self.priority_groups),
            metadata=dict(self.metadata) if self.metadata is not None else None,
        )

    @property
    def is_durable(self) -> bool:
        return bool(self.durable_name)

    @property
    def is_push(self) -> bool:
        return bool(self.deliver_subject)

    @property
    def filters(self) -> list[str]:
        """What it hears of its stream; empty: everything."""
        return [self.filter_subject] if self.filter_subject else list(self.filter_subjects)

    @property
    def pause_until_ns(self) -> int:
        """Until when nothing is delivered; 0: it was never paused."""
        return time_ns(self.pause_until) if self.pause_until is not None else 0


CONFIG = Nested(ConsumerConfig, "ConsumerConfig", pointer=False)


class CreateConsumerRequest(Struct):
    stream_name: Annotated[str, TEXT] = ""
    config: Annotated[ConsumerConfig | None, CONFIG] = None
    action: Annotated[str, ACTION] = ""
    pedantic: Annotated[bool, FLAG] = False


# Answers show these also when they are empty; every other key only when it says something.
ALWAYS_SHOWN: Final = frozenset({"deliver_policy", "ack_policy", "replay_policy", "num_replicas"})
CONFIG_KEYS: Final = tuple(each.name for each in fields(ConsumerConfig))


def shown_config(config: ConsumerConfig, metadata: dict[str, str] | None = None) -> dict[str, Any]:
    """A configuration as an answer shows it; `metadata` is shown beside the consumer's own."""
    shown: dict[str, Any] = {}
    for key in CONFIG_KEYS:
        value = getattr(config, key)
        if value or key in ALWAYS_SHOWN:
            shown[key] = value
    if config.priority_policy == "none":
        del shown["priority_policy"]
    together = {**(config.metadata or {}), **(metadata or {})}
    if together:
        shown["metadata"] = dict(sorted(together.items()))
    return shown


def set_required_level(config: ConsumerConfig) -> None:
    """Writes the API level that the configuration's features need into its metadata."""
    level = 0
    if config.pause_until is not None and config.pause_until_ns != ZERO_NS:
        level = 1
    if config.priority_policy != "none" or config.priority_timeout or config.priority_groups:
        level = 1
    if config.ack_policy == "flow_control":
        level = 4
    kept = {k: v for k, v in (config.metadata or {}).items() if k not in ANSWER_KEYS}
    config.metadata = {**kept, REQUIRED_LEVEL_KEY: str(level)}


ZERO_NS: Final = time_ns("0001-01-01T00:00:00Z")


def adopt_required_level(config: ConsumerConfig, stored: ConsumerConfig) -> None:
    """Takes the level another configuration has, so that the two can be compared."""
    kept = {k: v for k, v in (config.metadata or {}).items() if k not in ANSWER_KEYS}
    kept.pop(REQUIRED_LEVEL_KEY, None)
    level = (stored.metadata or {}).get(REQUIRED_LEVEL_KEY)
    if level is not None:
        kept[REQUIRED_LEVEL_KEY] = level
    config.metadata = kept or None
