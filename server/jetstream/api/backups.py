"""Whole streams: snapshots out, restores in."""

from __future__ import annotations

from typing import Final

from server.core.subject import is_valid_literal
from server.jetstream import errors, validate
from server.jetstream.advisory import Asker
from server.jetstream.api.answers import stream_state
from server.jetstream.api.request import (
    Answer,
    Endpoint,
    Request,
    RestoreRequest,
    SnapshotRequest,
    ToldState,
)
from server.jetstream.config import StreamConfig, shown_config
from server.jetstream.restoring import ArchivedState
from server.jetstream.snapshots import wanted


def snapshot(request: Request) -> Answer:
    request.demand_body()
    stream = request.stream(request.names[0])
    asked = request.decode(SnapshotRequest, "JSApiStreamSnapshotRequest")
    if not is_valid_literal(asked.deliver_subject):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    snapshots = request.engine.snapshots
    if snapshots.is_full:
        raise errors.STREAM_SNAPSHOT(err="too many snapshots are being sent")
    state = stream_state(stream, details=False)
    asker = asker_of(request)
    request.engine.advisories.snapshot_create(stream, state, asker)
    size, window = asked.chunk_size, asked.window_size
    bounds = wanted(asked.deliver_subject, not asked.no_consumers, size, window)
    snapshots.start(stream, bounds, asker)
    return {"config": shown_config(stream.config), "state": state}


def restore(request: Request) -> Answer:
    request.demand_body()
    asked = request.decode(RestoreRequest, "JSApiStreamRestoreRequest")
    config, name = asked.config or StreamConfig(), request.names[0]
    config.name = config.name or name
    if config.name != name:
        raise errors.STREAM_MISMATCH()
    if "/" in name or "\\" in name:
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS()
    engine, owner = request.engine, request.jetstream
    config = validate.check_config(config, engine.surroundings(owner), False)
    engine.check_room(owner, config)
    if name in owner.streams:
        raise errors.STREAM_NAME_EXIST_RESTORE_FAILED()
    if engine.restores.is_full:
        raise errors.STREAM_RESTORE(err="too many streams are being restored")
    asker = asker_of(request)
    engine.advisories.restore_create(request.account, name, asker)
    told = asked.state or ToldState()
    state = ArchivedState(told.bytes, told.first_seq, told.last_seq, told.consumer_count)
    return {"deliver_subject": engine.restores.start(owner, config, state, asker).subject}


def asker_of(request: Request) -> Asker:
    return request.engine.advisories.requester(request.client, request.account)


ENDPOINTS: Final = (
    Endpoint(("STREAM", "SNAPSHOT"), 1, "stream_snapshot_response", snapshot),
    Endpoint(
        ("STREAM", "RESTORE"),
        1,
        "stream_restore_response",
        restore,
        on_error={"deliver_subject": ""},
    ),
)
