"""Streams and consumers that a newer server made: kept as they are, shown as offline, not served.

What a configuration on disk says and this server does not know may be what its messages depend on.
So such a stream hears and delivers nothing; a stream with such a consumer does neither, because
what the consumer still needs would be removed. They may be deleted, and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from server.jetstream import config as kinds
from server.jetstream.consumer_config import ConsumerConfig
from server.version import JETSTREAM_API_LEVEL
from storage.ports import StreamStore

LEVEL: Final = re.compile(r"[+-]?[0-9]{1,18}")
# What stands below a key, where that is a struct or a list of them.
BELOW: Final[dict[type[Struct], dict[str, type[Struct]]]] = {
    kinds.StreamConfig: {
        "placement": kinds.Placement,
        "mirror": kinds.StreamSource,
        "sources": kinds.StreamSource,
        "subject_transform": kinds.SubjectTransformConfig,
        "republish": kinds.RePublish,
        "consumer_limits": kinds.StreamConsumerLimits,
    },
    kinds.StreamSource: {
        "subject_transforms": kinds.SubjectTransformConfig,
        "external": kinds.ExternalStream,
        "consumer": kinds.StreamConsumerSource,
    },
}
NOTHING_BELOW: Final[dict[str, type[Struct]]] = {}


@dataclass(slots=True)
class OfflineStream:
    """What is known of one. `consumers` are the reasons of those that are offline themselves."""

    config: kinds.StreamConfig
    store: StreamStore
    reason: str
    consumers: dict[str, str] = field(default_factory=dict)


def stream_reason(config: kinds.StreamConfig, raw: str | bytes) -> str:
    """Why it cannot be served, in the reference's words; empty when it can."""
    return reason(kinds.StreamConfig, config.metadata, msgspec.json.decode(raw))


def consumer_reason(config: ConsumerConfig, kept: Any) -> str:
    return reason(ConsumerConfig, config.metadata, kept)


def reason(kind: type[Struct], metadata: dict[str, str] | None, kept: Any) -> str:
    unknown = unknown_key(kind, kept)
    level = (metadata or {}).get(kinds.REQUIRED_LEVEL_KEY, "")
    if not level or (LEVEL.fullmatch(level) and int(level) <= JETSTREAM_API_LEVEL):
        return f'decoding error: json: unknown field "{unknown}"' if unknown else ""
    if unknown:
        return f'unsupported - config error: unknown field "{unknown}"'
    ours = JETSTREAM_API_LEVEL
    return f"unsupported - required API level: {level}, current API level: {ours}"


def unknown_key(kind: type[Struct], kept: Any) -> str:
    """The first key that this server does not know, below all others as well."""
    if isinstance(kept, list):
        return next(filter(None, (unknown_key(kind, each) for each in kept)), "")
    if not isinstance(kept, dict):
        return ""
    if not kept.keys() <= known_keys(kind):
        return next(str(key) for key in kept if key not in known_keys(kind))
    for key, below in BELOW.get(kind, NOTHING_BELOW).items():
        value = kept.get(key)
        if value and (found := unknown_key(below, value)):
            return found
    return ""


@cache
def known_keys(kind: type[Struct]) -> frozenset[str]:
    return frozenset(kind.__struct_encode_fields__)
