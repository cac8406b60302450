"""What a stream is made from. Names and their order are those of the wire, so that an answer shows
a configuration exactly as the reference does; times are nanoseconds, sizes bytes."""

from __future__ import annotations

import copy
from typing import Annotated, Any, Final

from msgspec import Struct, field
from msgspec.structs import asdict, fields

from server.jetstream.gojson import (
    DURATION,
    FLAG,
    INT,
    INT32,
    INT64,
    TEXT,
    TEXT_MAP,
    TEXTS,
    TIME,
    UINT64,
    Choice,
    Compression,
    ListOf,
    Nested,
)

REQUIRED_LEVEL_KEY: Final = "_nats.req.level"
SERVER_VERSION_KEY: Final = "_nats.ver"
SERVER_LEVEL_KEY: Final = "_nats.level"

RETENTION = Choice("limits", "interest", "workqueue")
DISCARD = Choice("old", "new", fold=True)
STORAGE = Choice("file", "memory")
PERSIST_MODE = Choice("async", other={"default": "", "": ""})
COMPRESSION = Compression("")
TAGS = ListOf(TEXT, "[]string", null=None)


class SubjectTransformConfig(Struct):
    src: Annotated[str, TEXT] = ""
    dest: Annotated[str, TEXT] = ""


class RePublish(Struct):
    src: Annotated[str, TEXT] = ""
    dest: Annotated[str, TEXT] = ""
    headers_only: Annotated[bool, FLAG] = False


class Placement(Struct):
    cluster: Annotated[str, TEXT] = ""
    # An empty list is something else than none: the reference keeps such a placement.
    tags: Annotated[list[str] | None, TAGS] = None
    preferred: Annotated[str, TEXT] = ""


class ExternalStream(Struct):
    api: Annotated[str, TEXT] = ""
    deliver: Annotated[str, TEXT] = ""


class StreamConsumerSource(Struct, omit_defaults=True):
    name: Annotated[str, TEXT] = ""
    deliver_subject: Annotated[str, TEXT] = ""


class StreamConsumerLimits(Struct, omit_defaults=True):
    inactive_threshold: Annotated[int, DURATION] = 0
    max_ack_pending: Annotated[int, INT] = 0


TRANSFORM = Nested(SubjectTransformConfig, "SubjectTransformConfig", pointer=False)


class StreamSource(Struct):
    name: Annotated[str, TEXT] = ""
    opt_start_seq: Annotated[int, UINT64] = 0
    opt_start_time: Annotated[str | None, TIME] = None
    filter_subject: Annotated[str, TEXT] = ""
    subject_transforms: Annotated[
        list[SubjectTransformConfig], ListOf(TRANSFORM, "[]server.SubjectTransformConfig")
    ] = []
    external: Annotated[ExternalStream | None, Nested(ExternalStream, "ExternalStream")] = None
    consumer: Annotated[
        StreamConsumerSource | None, Nested(StreamConsumerSource, "StreamConsumerSource")
    ] = None


SOURCE = Nested(StreamSource, "StreamSource")


class StreamConfig(Struct):
    """One stream's configuration. `storage`, `num_replicas` and limits are normal only after
    `validate.check_config`."""

    name: Annotated[str, TEXT] = ""
    description: Annotated[str, TEXT] = ""
    subjects: Annotated[list[str], TEXTS] = []
    retention: Annotated[str, RETENTION] = "limits"
    max_consumers: Annotated[int, INT] = 0
    max_msgs: Annotated[int, INT64] = 0
    max_bytes: Annotated[int, INT64] = 0
    max_age: Annotated[int, DURATION] = 0
    max_msgs_per_subject: Annotated[int, INT64] = 0
    max_msg_size: Annotated[int, INT32] = 0
    discard: Annotated[str, DISCARD] = "old"
    storage: Annotated[str, STORAGE] = "file"
    num_replicas: Annotated[int, INT] = 0
    no_ack: Annotated[bool, FLAG] = False
    duplicate_window: Annotated[int, DURATION] = 0
    placement: Annotated[Placement | None, Nested(Placement, "Placement")] = None
    mirror: Annotated[StreamSource | None, SOURCE] = None
    sources: Annotated[list[StreamSource], ListOf(SOURCE, "[]*server.StreamSource")] = []
    compression: Annotated[str, COMPRESSION] = "none"
    first_seq: Annotated[int, UINT64] = 0
    subject_transform: Annotated[
        SubjectTransformConfig | None, Nested(SubjectTransformConfig, "SubjectTransformConfig")
    ] = None
    republish: Annotated[RePublish | None, Nested(RePublish, "RePublish")] = None
    allow_direct: Annotated[bool, FLAG] = False
    mirror_direct: Annotated[bool, FLAG] = False
    discard_new_per_subject: Annotated[bool, FLAG] = False
    sealed: Annotated[bool, FLAG] = False
    deny_delete: Annotated[bool, FLAG] = False
    deny_purge: Annotated[bool, FLAG] = False
    allow_rollup_hdrs: Annotated[bool, FLAG] = False
    consumer_limits: Annotated[
        StreamConsumerLimits, Nested(StreamConsumerLimits, "StreamConsumerLimits", pointer=False)
    ] = field(default_factory=StreamConsumerLimits)
    allow_msg_ttl: Annotated[bool, FLAG] = False
    subject_delete_marker_ttl: Annotated[int, DURATION] = 0
    allow_msg_counter: Annotated[bool, FLAG] = False
    allow_atomic: Annotated[bool, FLAG] = False
    allow_msg_schedules: Annotated[bool, FLAG] = False
    persist_mode: Annotated[str, PERSIST_MODE] = ""
    allow_batched: Annotated[bool, FLAG] = False
    metadata: Annotated[dict[str, str] | None, TEXT_MAP] = None

    def copy(self) -> StreamConfig:
        made = copy.copy(self)
        for key in NESTED_KEYS:
            value = getattr(self, key)
            if value is not None:
                # What has no structs inside needs no deep copy, which is slow.
                copied = copy.copy if key in FLAT_KEYS or not value else copy.deepcopy
                setattr(made, key, copied(value))
        return made


class StreamConfigRequest(StreamConfig):
    """CREATE and UPDATE: the configuration and how strictly it is meant."""

    pedantic: Annotated[bool, FLAG] = False

    def config(self) -> StreamConfig:
        return StreamConfig(*(getattr(self, key) for key in CONFIG_KEYS))


# Answers show these also when they are empty; every other key only when it says something.
ALWAYS_SHOWN: Final = frozenset(
    {
        "name",
        "retention",
        "max_consumers",
        "max_msgs",
        "max_bytes",
        "max_age",
        "max_msgs_per_subject",
        "discard",
        "storage",
        "num_replicas",
        "compression",
        "allow_direct",
        "mirror_direct",
        "sealed",
        "deny_delete",
        "deny_purge",
        "allow_rollup_hdrs",
        "consumer_limits",
        "allow_msg_ttl",
    }
)
# What a copy may not share; everything else is a plain value.
NESTED_KEYS: Final = (
    "subjects",
    "placement",
    "mirror",
    "sources",
    "subject_transform",
    "republish",
    "consumer_limits",
    "metadata",
)
FLAT_KEYS: Final = ("subjects", "consumer_limits", "metadata")
# Asking msgspec each time would resolve the annotations each time.
CONFIG_KEYS: Final = tuple(each.name for each in fields(StreamConfig))
SOURCE_KEYS: Final = tuple(each.name for each in fields(StreamSource))


def shown_config(config: StreamConfig, metadata: dict[str, str] | None = None) -> dict[str, Any]:
    """A configuration as an answer shows it; `metadata` is shown beside the stream's own."""
    shown: dict[str, Any] = {}
    for key in CONFIG_KEYS:
        value = getattr(config, key)
        if value or key in ALWAYS_SHOWN:
            shown[key] = value
    if config.placement is not None:
        shown["placement"] = without_empty(config.placement)
    if config.republish is not None:
        shown["republish"] = {"dest": ""} | without_empty(config.republish)
    if config.mirror is not None:
        shown["mirror"] = shown_source(config.mirror)
    if config.sources:
        shown["sources"] = [shown_source(source) for source in config.sources]
    together = {**(config.metadata or {}), **(metadata or {})}
    if together:
        shown["metadata"] = dict(sorted(together.items()))
    return shown


def without_empty(struct: Struct) -> dict[str, Any]:
    return {key: value for key, value in asdict(struct).items() if value}


def shown_source(source: StreamSource) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": source.name}
    for key in SOURCE_KEYS[1:]:
        value = getattr(source, key)
        if value or (value is not None and key in ("external", "consumer")):
            shown[key] = value
    return shown


def set_required_level(config: StreamConfig) -> None:
    """Writes the API level that the configuration's features need into its metadata."""
    level = 0
    if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0:
        level = 1
    if (
        config.allow_msg_counter
        or config.allow_atomic
        or config.allow_msg_schedules
        or config.persist_mode == "async"
    ):
        level = 2
    if config.allow_batched:
        level = 4
    kept = {k: v for k, v in (config.metadata or {}).items() if k not in ANSWER_KEYS}
    config.metadata = {**kept, REQUIRED_LEVEL_KEY: str(level)}


ANSWER_KEYS: Final = (SERVER_VERSION_KEY, SERVER_LEVEL_KEY)


def adopt_required_level(config: StreamConfig, stored: StreamConfig) -> None:
    """Takes the level another configuration has, so that the two can be compared."""
    kept = {k: v for k, v in (config.metadata or {}).items() if k not in ANSWER_KEYS}
    kept.pop(REQUIRED_LEVEL_KEY, None)
    level = (stored.metadata or {}).get(REQUIRED_LEVEL_KEY)
    if level is not None:
        kept[REQUIRED_LEVEL_KEY] = level
    config.metadata = kept or None
