"""Consumers: made, changed, told about, paused, set back, unpinned and removed."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from msgspec import Raw

from server.jetstream import consumer_validate as rules
from server.jetstream import consumers, errors
from server.jetstream.api.answers import consumer_info, pause_state
from server.jetstream.api.request import (
    Answer,
    Endpoint,
    Paged,
    PauseRequest,
    Request,
    ResetRequest,
    Unanswered,
    UnpinRequest,
)
from server.jetstream.api.streams import LIST_LIMIT, NAMES_LIMIT, NO_PAGE, needs_cluster
from server.jetstream.apierror import ApiError
from server.jetstream.consumer import Consumer
from server.jetstream.consumer_config import (
    ConsumerConfig,
    CreateConsumerRequest,
    set_required_level,
)
from server.jetstream.gojson import encode
from server.jetstream.gotime import ZERO_TIME, shown_time


def page(request: Request) -> tuple[int, list[Consumer]]:
    """The offset that is asked for and the stream's consumers that are nobody's secret."""
    asked = request.optional(Paged, "JSApiConsumersRequest")
    if request.names[0] in request.jetstream.offline:
        return 0, []
    stream = request.stream(request.names[0])
    shown = sorted(name for name, each in stream.consumers.items() if not each.config.direct)
    return max(asked.offset, 0), [stream.consumers[name] for name in shown]


def names(request: Request) -> Answer:
    offset, found = page(request)
    offset = min(offset, len(found))
    shown = [consumer.name for consumer in found[offset : offset + NAMES_LIMIT]]
    return {"total": len(found), "offset": offset, "limit": NAMES_LIMIT, "consumers": shown}


def list_consumers(request: Request) -> Generator[None, None, Answer]:
    offset, found = page(request)
    offset = min(offset, len(found))
    shown = []
    for consumer in found[offset : offset + LIST_LIMIT]:
        shown.append(Raw(encode(consumer_info(consumer, with_server=False))))
        yield
    answer: Answer = {"total": len(found), "offset": offset, "limit": LIST_LIMIT}
    answer["consumers"] = shown
    if offline := request.jetstream.offline.get(request.names[0]):
        answer |= {"missing": sorted(offline.consumers), "offline": offline.consumers}
    return answer


def info(request: Request) -> Answer:
    request.demand_no_body()
    return consumer_info(request.consumer())


def delete(request: Request) -> Answer:
    request.demand_no_body()
    consumers.delete(request.engine, request.consumer())
    return {"success": True}


def pause(request: Request) -> Answer:
    asked = request.optional(PauseRequest, "JSApiConsumerPauseRequest")
    until_ns = consumers.pause(request.engine, request.consumer(), asked.pause_until)
    state = pause_state(until_ns, request.engine.now_ns())
    return {"paused": False, "pause_until": shown_time(until_ns)} | state


def unpin(request: Request) -> Answer:
    asked = request.decode_loosely(UnpinRequest, "JSApiConsumerUnpinRequest")
    if not asked.group:
        raise errors.INVALID_JSON(err="consumer group not specified")
    if not rules.GROUP_NAME.fullmatch(asked.group):
        raise errors.CONSUMER_INVALID_GROUP_NAME()
    consumer = request.consumer()
    if asked.group not in consumer.config.priority_groups:
        raise errors.CONSUMER_INVALID_PRIORITY_GROUP()
    consumer.unpin(asked.group)
    request.engine.advisories.consumer_unpinned(consumer, asked.group, "admin")
    return {}


def reset(request: Request) -> Answer:
    """Asked of the consumer itself: without one, nobody answers."""
    try:
        consumer = request.consumer()
    except ApiError as error:
        raise Unanswered from error
    asked = ResetRequest()
    if request.body:
        asked = request.decode_loosely(ResetRequest, "JSApiConsumerResetRequest")
    store = consumer.stream.store
    rules.check_reset(consumer.config, asked.seq, store.first_seq_from_time)
    started = consumer.reset(asked.seq)
    return consumer_info(consumer) | {"reset_seq": started}


# Making one, in its three forms


def create(request: Request) -> Answer:
    """CREATE.<stream>, CREATE.<stream>.<name> and CREATE.<stream>.<name>.<filter>."""
    asked, config = decoded(request)
    has_name = len(request.names) > 1
    name = request.names[1] if has_name else config.name
    subject_filter = ".".join(request.names[2:])
    check_subject(request, asked, name)
    if has_name:
        if config.durable_name and config.durable_name != name:
            raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()
        config.name = name
    elif config.durable_name:
        raise errors.CONSUMER_EPHEMERAL_WITH_DURABLE_NAME()
    if subject_filter:
        if config.filter_subjects:
            raise errors.CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED()
        if config.filter_subject != subject_filter:
            raise errors.CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH()
    return made(request, asked, config, name)


def create_durable(request: Request) -> Answer:
    """DURABLE.CREATE.<stream>.<name>, the oldest form."""
    asked, config = decoded(request)
    name = request.names[1]
    check_subject(request, asked, name)
    if not config.durable_name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_SET()
    if config.durable_name != name:
        raise errors.CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT()
    config.name = name
    return made(request, asked, config, name)


def decoded(request: Request) -> tuple[CreateConsumerRequest, ConsumerConfig]:
    asked = request.decode(CreateConsumerRequest, "CreateConsumerRequest")
    if request.owner is None:
        raise errors.NOT_ENABLED_FOR_ACCOUNT()
    return asked, asked.config or ConsumerConfig()


def check_subject(request: Request, asked: CreateConsumerRequest, name: str) -> None:
    if asked.stream_name != request.names[0]:
        raise errors.STREAM_MISMATCH()
    if "/" in name or "\\" in name:
        raise errors.CONSUMER_NAME_CONTAINS_PATH_SEPARATORS()


def made(
    request: Request, asked: CreateConsumerRequest, config: ConsumerConfig, name: str
) -> Answer:
    if config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    engine, owner = request.engine, request.jetstream
    stream = request.stream(asked.stream_name)
    known = stream.consumers.get(name)
    if known is not None:
        # Only PAUSE changes it.
        config.pause_until = known.config.pause_until
    set_required_level(config)
    consumer = consumers.create(engine, owner, stream, config, asked.action, asked.pedantic)
    answer = consumer_info(consumer)
    if consumer.config.pause_until_ns > engine.now_ns():
        engine.advisories.consumer_pause(consumer)
    return answer


CREATED: Final = "consumer_create_response"
NO_CONSUMERS: Final[dict[str, Any]] = NO_PAGE | {"consumers": []}
NOT_PAUSED: Final = {"paused": False, "pause_until": ZERO_TIME}

ENDPOINTS: Final = (
    Endpoint(("CONSUMER", "CREATE"), 1, CREATED, create, more_names=True, body_first=True),
    Endpoint(("CONSUMER", "DURABLE", "CREATE"), 2, CREATED, create_durable, body_first=True),
    Endpoint(
        ("CONSUMER", "NAMES"), 1, "consumer_names_response", names, on_error=NO_CONSUMERS, info=True
    ),
    Endpoint(
        ("CONSUMER", "LIST"),
        1,
        "consumer_list_response",
        list_consumers,
        on_error=NO_CONSUMERS,
        info=True,
    ),
    Endpoint(("CONSUMER", "INFO"), 2, "consumer_info_response", info, info=True),
    Endpoint(("CONSUMER", "DELETE"), 2, "consumer_delete_response", delete),
    Endpoint(("CONSUMER", "PAUSE"), 2, "consumer_pause_response", pause, on_error=NOT_PAUSED),
    Endpoint(
        ("CONSUMER", "RESET"),
        2,
        "consumer_reset_response",
        reset,
        on_error={"reset_seq": 0},
        unseen=True,
    ),
    Endpoint(("CONSUMER", "UNPIN"), 2, "consumer_unpin_response", unpin, body_first=True),
    Endpoint(
        ("CONSUMER", "LEADER", "STEPDOWN"),
        2,
        "consumer_leader_stepdown_response",
        needs_cluster,
        clustered=True,
    ),
)
