"""Consumers: what can be answered of them while there are none."""

from __future__ import annotations

from typing import Final

from server.jetstream import errors
from server.jetstream.api.request import (
    Answer,
    Endpoint,
    Paged,
    PauseRequest,
    Request,
    UnpinRequest,
)
from server.jetstream.api.streams import LIST_LIMIT, NAMES_LIMIT, NO_PAGE, needs_cluster
from server.jetstream.gotime import ZERO_TIME

CONSUMERS_LATER: Final = "this server has no consumers yet"


def names(request: Request) -> Answer:
    request.optional(Paged, "JSApiConsumersRequest")
    request.stream(request.names[0])
    return {"total": 0, "offset": 0, "limit": NAMES_LIMIT, "consumers": []}


def list_consumers(request: Request) -> Answer:
    request.optional(Paged, "JSApiConsumersRequest")
    request.stream(request.names[0])
    return {"total": 0, "offset": 0, "limit": LIST_LIMIT, "consumers": []}


def missing(request: Request) -> Answer:
    """INFO and DELETE of a consumer: no body, and nothing to be found."""
    request.demand_no_body()
    request.stream(request.names[0])
    raise errors.CONSUMER_NOT_FOUND()


def pause(request: Request) -> Answer:
    request.optional(PauseRequest, "JSApiConsumerPauseRequest")
    request.stream(request.names[0])
    raise errors.CONSUMER_NOT_FOUND()


def unpin(request: Request) -> Answer:
    asked = request.decode_loosely(UnpinRequest, "JSApiConsumerUnpinRequest")
    if not asked.group:
        raise errors.INVALID_JSON(err="consumer group not specified")
    request.stream(request.names[0])
    raise errors.CONSUMER_NOT_FOUND()


def create(request: Request) -> Answer:
    request.stream(request.names[0])
    raise errors.CONSUMER_CREATE(err=CONSUMERS_LATER)


CREATED: Final = "consumer_create_response"
NO_CONSUMERS: Final = NO_PAGE | {"consumers": []}
NOT_PAUSED: Final = {"paused": False, "pause_until": ZERO_TIME}

ENDPOINTS: Final = (
    Endpoint(("CONSUMER", "CREATE"), 1, CREATED, create, more_names=True),
    Endpoint(("CONSUMER", "DURABLE", "CREATE"), 2, CREATED, create),
    Endpoint(("CONSUMER", "NAMES"), 1, "consumer_names_response", names, on_error=NO_CONSUMERS),
    Endpoint(
        ("CONSUMER", "LIST"), 1, "consumer_list_response", list_consumers, on_error=NO_CONSUMERS
    ),
    Endpoint(("CONSUMER", "INFO"), 2, "consumer_info_response", missing),
    Endpoint(("CONSUMER", "DELETE"), 2, "consumer_delete_response", missing),
    Endpoint(("CONSUMER", "PAUSE"), 2, "consumer_pause_response", pause, on_error=NOT_PAUSED),
    Endpoint(("CONSUMER", "UNPIN"), 2, "consumer_unpin_response", unpin, body_first=True),
    Endpoint(
        ("CONSUMER", "LEADER", "STEPDOWN"),
        2,
        "consumer_leader_stepdown_response",
        needs_cluster,
        clustered=True,
    ),
)
