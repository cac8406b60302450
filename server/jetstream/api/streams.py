"""Streams: made, changed, told about, emptied and removed."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Raw

from server.jetstream import errors, validate
from server.jetstream.api.answers import account_info, stream_info
from server.jetstream.api.request import (
    Answer,
    Endpoint,
    PurgeRequest,
    Request,
    StreamInfoRequest,
    StreamsRequest,
)
from server.jetstream.config import StreamConfigRequest, set_required_level
from server.jetstream.gojson import encode
from server.jetstream.stream import Stream

if TYPE_CHECKING:
    from server.jetstream.engine import JetStreamAccount

NAMES_LIMIT: Final = 1024
LIST_LIMIT: Final = 256
SUBJECTS_LIMIT: Final = 100_000
SUBJECTS_A_STEP: Final = 4_096
NO_PAGE: Final[Answer] = {"total": 0, "offset": 0, "limit": 0}


def info(request: Request) -> Answer:
    return account_info(request.engine, request.jetstream)


def create(request: Request) -> Answer:
    asked = request.decode(StreamConfigRequest, "StreamConfigRequest")
    config = asked.config()
    set_required_level(config)
    name = request.names[0]
    if name != config.name:
        raise errors.STREAM_MISMATCH()
    if "/" in name or "\\" in name:
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS()
    if config.sealed:
        raise errors.STREAM_INVALID_CONFIG(err="stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        text = "stream has no mirror but does have mirror direct"
        raise errors.STREAM_INVALID_CONFIG(err=text)
    stream = request.engine.create(request.jetstream, config, asked.pedantic)
    return stream_info(stream, with_domain=False) | {"did_create": True}


def update(request: Request) -> Answer | Generator[None, None, Answer]:
    asked = request.decode(StreamConfigRequest, "StreamConfigRequest")
    engine, owner = request.engine, request.jetstream
    config = validate.check_config(asked.config(), engine.surroundings(owner), asked.pedantic)
    if request.names[0] != config.name:
        raise errors.STREAM_MISMATCH()
    stream = request.stream(config.name)
    set_required_level(config)
    engine.update(owner, stream, config, asked.pedantic)
    return stream_info(stream) if stream.enforce_more() else enforced(stream)


def enforced(stream: Stream) -> Generator[None, None, Answer]:
    """Limits are lower, and many messages have to go."""
    while not stream.enforce_more():
        yield
    return stream_info(stream)


def delete(request: Request) -> Answer:
    request.demand_no_body()
    if request.names[0] in request.jetstream.offline:
        request.engine.delete_offline(request.jetstream, request.names[0])
        return {"success": True}
    stream = request.stream(request.names[0])
    request.engine.delete(request.jetstream, stream)
    return {"success": True}


def names(request: Request) -> Answer:
    asked = request.optional(StreamsRequest, "JSApiStreamNamesRequest")
    found = request.jetstream.matching(asked.subject)
    offset, page = page_of(found, asked.offset, NAMES_LIMIT)
    shown = {"total": len(found), "offset": offset, "limit": NAMES_LIMIT}
    return shown | {"streams": page or None}


def list_streams(request: Request) -> Generator[None, None, Answer]:
    asked = request.optional(StreamsRequest, "JSApiStreamListRequest")
    owner = request.jetstream
    found = owner.matching(asked.subject)
    offset, page = page_of(found, asked.offset, LIST_LIMIT)
    shown: Answer = {"total": len(found), "offset": offset, "limit": LIST_LIMIT}
    rows = []
    for name in page:
        stream = owner.streams.get(name)
        if stream is not None:  # it may go while the page is made
            rows.append(Raw(encode(stream_info(stream, with_server=False))))
            yield
    return shown | {"streams": rows} | offline_of(owner, page)


def offline_of(owner: JetStreamAccount, names: Sequence[str]) -> Answer:
    """Which of them are kept and not served, and why."""
    offline = {name: owner.offline[name].reason for name in names if name in owner.offline}
    return {"missing": list(offline), "offline": offline} if offline else {}


def page_of(rows: Sequence[str], offset: int, limit: int) -> tuple[int, Sequence[str]]:
    offset = min(max(offset, 0), len(rows))
    return offset, rows[offset : offset + limit]


def stream_details(request: Request) -> Answer | Generator[None, None, Answer]:
    asked = request.optional(StreamInfoRequest, "JSApiStreamInfoRequest")
    stream = request.stream(request.names[0])
    shown = stream_info(stream, details=asked.deleted_details, with_cluster=True)
    if not asked.subjects_filter:
        return NO_PAGE | shown
    return with_subjects(stream, shown, asked.subjects_filter, max(asked.offset, 0))


def with_subjects(
    stream: Stream, shown: Answer, filter_subject: str, offset: int
) -> Generator[None, None, Answer]:
    """A page of subjects, of which each step brings a part."""
    total = stream.store.matching_subjects(filter_subject)
    if not total:
        return NO_PAGE | shown
    end = min(total, offset + SUBJECTS_LIMIT)
    subjects: dict[str, int] = {}
    for at in range(offset, end, SUBJECTS_A_STEP):
        yield
        if stream.closed:
            raise errors.STREAM_NOT_FOUND()
        limit = min(SUBJECTS_A_STEP, end - at)
        subjects |= stream.store.subject_totals(filter_subject, at, limit)
    if offset < total:
        shown["state"]["subjects"] = subjects
    return {"total": total, "offset": offset, "limit": SUBJECTS_LIMIT} | shown


def purge(request: Request) -> Generator[None, None, Answer]:
    asked = request.optional(PurgeRequest, "JSApiStreamPurgeRequest")
    if asked.seq > 0 and asked.keep > 0:
        raise errors.BAD_REQUEST()
    stream = request.stream(request.names[0])
    if stream.config.sealed:
        raise errors.STREAM_SEALED()
    if stream.config.deny_purge:
        raise errors.STREAM_PURGE_FAILED(err="stream purge not permitted")
    purged = yield from stream.purge_in_slices(asked.filter, asked.seq, asked.keep)
    return {"success": True, "purged": purged}


def needs_cluster(request: Request) -> Answer:
    raise errors.CLUSTER_REQUIRED()


ENDPOINTS: Final = (
    Endpoint(("INFO",), 0, "account_info_response", info, info=True),
    Endpoint(("STREAM", "CREATE"), 1, "stream_create_response", create),
    Endpoint(("STREAM", "UPDATE"), 1, "stream_update_response", update),
    Endpoint(("STREAM", "DELETE"), 1, "stream_delete_response", delete),
    Endpoint(
        ("STREAM", "NAMES"),
        0,
        "stream_names_response",
        names,
        on_error=NO_PAGE | {"streams": None},
        info=True,
    ),
    Endpoint(
        ("STREAM", "LIST"),
        0,
        "stream_list_response",
        list_streams,
        on_error=NO_PAGE | {"streams": []},
        info=True,
    ),
    Endpoint(
        ("STREAM", "INFO"), 1, "stream_info_response", stream_details, on_error=NO_PAGE, info=True
    ),
    Endpoint(
        ("STREAM", "PURGE"),
        1,
        "stream_purge_response",
        purge,
        on_error={"purged": 0},
        lasting=True,
    ),
    Endpoint(
        ("STREAM", "LEADER", "STEPDOWN"),
        1,
        "stream_leader_stepdown_response",
        needs_cluster,
        clustered=True,
    ),
    Endpoint(
        ("STREAM", "PEER", "REMOVE"),
        1,
        "stream_remove_peer_response",
        needs_cluster,
        clustered=True,
    ),
    Endpoint(
        ("STREAM", "PEER", "EVACUATE"),
        1,
        "stream_evacuate_peer_response",
        needs_cluster,
        clustered=True,
    ),
    Endpoint(
        ("STREAM", "CANCEL_MOVE"), 1, "stream_cancel_move_response", needs_cluster, clustered=True
    ),
)
