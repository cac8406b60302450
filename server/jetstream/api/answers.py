"""The shapes that several answers share: a stream's information, its state, an account's use."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from config.limits import MAX_LOST_SHOWN
from server.jetstream.config import (
    SERVER_LEVEL_KEY,
    SERVER_VERSION_KEY,
    StreamSource,
    shown_config,
    shown_source,
)
from server.jetstream.consumer import Consumer, PriorityGroupState, SequencePair
from server.jetstream.consumer_config import shown_config as shown_consumer_config
from server.jetstream.copier import NEVER_HEARD, Copier
from server.jetstream.gotime import shown_time, time_text
from server.jetstream.origins import index_name
from server.version import COMPAT_VERSION, JETSTREAM_API_LEVEL
from storage.ports import StreamState

if TYPE_CHECKING:
    from server.jetstream.engine import Engine, JetStreamAccount
    from server.jetstream.stream import Stream

SERVER_METADATA = {
    SERVER_VERSION_KEY: COMPAT_VERSION,
    SERVER_LEVEL_KEY: str(JETSTREAM_API_LEVEL),
}


def stream_info(
    stream: Stream,
    *,
    details: bool = False,
    with_domain: bool = True,
    with_cluster: bool = False,
    with_server: bool = True,
) -> dict[str, Any]:
    engine, config = stream.engine, stream.config
    info: dict[str, Any] = {
        "config": shown_config(config, SERVER_METADATA if with_server else None),
        "created": time_text(stream.created_ns),
        "state": stream_state(stream, details),
    }
    if engine.domain and with_domain:
        info["domain"] = engine.domain
    if with_cluster:
        info["cluster"] = {"leader": engine.server_name}
    if config.mirror is not None:
        info["mirror"] = mirror_info(stream, config.mirror)
    if config.sources:
        info["sources"] = [source_info(stream, source) for source in config.sources]
    info["ts"] = time_text(engine.now_ns())
    return info


def consumer_info(consumer: Consumer, *, with_server: bool = True) -> dict[str, Any]:
    stream, info = consumer.stream, consumer.info()
    now_ns = stream.engine.now_ns()
    shown: dict[str, Any] = {
        "stream_name": stream.name,
        "name": consumer.name,
        "created": time_text(consumer.created_ns),
        "config": shown_consumer_config(consumer.config, SERVER_METADATA if with_server else None),
        "delivered": sequence_pair(info.delivered),
        "ack_floor": sequence_pair(info.ack_floor),
        "num_ack_pending": info.num_ack_pending,
        "num_redelivered": 0 if consumer.config.max_deliver == 1 else info.num_redelivered,
        "num_waiting": info.num_waiting,
        "num_pending": info.num_pending,
    }
    if info.push_bound:
        shown["push_bound"] = True
    shown |= pause_state(consumer.config.pause_until_ns, now_ns)
    shown["ts"] = time_text(now_ns)
    if info.priority_groups:
        shown["priority_groups"] = [group_state(group) for group in info.priority_groups]
    return shown


def pause_state(until_ns: int, now_ns: int) -> dict[str, Any]:
    """How long a consumer is paused yet; nothing when it is not."""
    if until_ns <= now_ns:
        return {}
    return {"paused": True, "pause_remaining": until_ns - now_ns}


def sequence_pair(pair: SequencePair) -> dict[str, Any]:
    shown: dict[str, Any] = {"consumer_seq": pair.consumer_seq, "stream_seq": pair.stream_seq}
    if pair.last_active_ns:
        shown["last_active"] = time_text(pair.last_active_ns)
    return shown


def group_state(state: PriorityGroupState) -> dict[str, Any]:
    shown: dict[str, Any] = {"group": state.group}
    if state.pinned_client_id:
        shown["pinned_client_id"] = state.pinned_client_id
    shown["pinned_ts"] = shown_time(state.pinned_ns)
    return shown


def stream_state(stream: Stream, details: bool) -> dict[str, Any]:
    state = stream.state(details)
    shown: dict[str, Any] = {
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": state.first_seq,
        "first_ts": shown_time(state.first_ts_ns),
        "last_seq": state.last_seq,
        "last_ts": shown_time(state.last_ts_ns),
    }
    if state.subject_count:
        shown["num_subjects"] = state.subject_count
    if state.deleted_count:
        shown["num_deleted"] = state.deleted_count
    if details and state.deleted:
        shown["deleted"] = list(state.deleted)
    add_lost(shown, state)
    shown["consumer_count"] = stream.consumer_count
    return shown


def add_lost(shown: dict[str, Any], state: StreamState) -> None:
    """One by one, as clients expect; of very many only the first, and how many there are."""
    if state.lost is None or not state.lost.sequences:
        return
    sequences = state.lost.sequences
    shown["lost"] = {"msgs": list(islice(sequences, MAX_LOST_SHOWN)), "bytes": state.lost.bytes}
    if len(sequences) > MAX_LOST_SHOWN:
        shown["lost"]["count"] = len(sequences)


def mirror_info(stream: Stream, mirror: StreamSource) -> dict[str, Any]:
    copier = stream.inflow.mirror if stream.inflow is not None else None
    shown = origin_info(mirror, copier)
    if copier is None or not copier.asked:
        # Its filter is told once the mirror is running.
        shown.pop("filter_subject", None)
    return shown


def source_info(stream: Stream, source: StreamSource) -> dict[str, Any]:
    sources = stream.inflow.sources if stream.inflow is not None else {}
    copier = sources.get(index_name(source))
    shown = origin_info(source, copier)
    if copier is not None and copier.position:
        shown["seq"] = copier.position
    return shown


def origin_info(source: StreamSource, copier: Copier | None) -> dict[str, Any]:
    """What is known of a mirror's or source's origin."""
    whole = shown_source(source)
    shown: dict[str, Any] = {"name": source.name}
    if source.external is not None:
        shown["external"] = source.external
    shown["lag"] = copier.lag if copier is not None else 0
    shown["active"] = copier.active_ns if copier is not None else NEVER_HEARD
    if copier is not None and copier.shown_error is not None:
        shown["error"] = copier.shown_error.shown()
    for key in ("filter_subject", "subject_transforms"):
        if key in whole:
            shown[key] = whole[key]
    return shown


def account_info(engine: Engine, owner: JetStreamAccount) -> dict[str, Any]:
    limits = owner.limits
    shown: dict[str, Any] = {
        "memory": owner.used_bytes("memory"),
        "storage": owner.used_bytes("file"),
        "reserved_memory": owner.reserved_bytes("memory"),
        "reserved_storage": owner.reserved_bytes("file"),
        "streams": len(owner.streams),
        "consumers": sum(stream.consumer_count for stream in owner.streams.values()),
        "limits": {
            "max_memory": limits.max_memory_bytes,
            "max_storage": limits.max_store_bytes,
            "max_streams": limits.max_streams,
            "max_consumers": limits.max_consumers,
            "max_ack_pending": limits.max_ack_pending,
            "memory_max_stream_bytes": limits.memory_max_stream_bytes,
            "storage_max_stream_bytes": limits.store_max_stream_bytes,
            "max_bytes_required": limits.max_bytes_required,
        },
    }
    if engine.domain:
        shown["domain"] = engine.domain
    shown["api"] = {
        "level": JETSTREAM_API_LEVEL,
        "total": owner.api.total,
        "errors": owner.api.errors,
    }
    return shown
