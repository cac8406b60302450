"""Single messages of a stream: read and removed."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from server.jetstream import errors
from server.jetstream.api.request import (
    Answer,
    Endpoint,
    MessageDeleteRequest,
    MessageGetRequest,
    Request,
    Unanswered,
)
from server.jetstream.gotime import store_ns, time_text
from server.jetstream.stream import Stream
from storage.ports import StoredMessage


def get(request: Request) -> Answer:
    request.demand_body()
    asked = request.decode(MessageGetRequest, "JSApiMsgGetRequest")
    if asked.batch > 0 or asked.max_bytes > 0 or not names_one(asked):
        raise errors.BAD_REQUEST()
    if request.names[0] in request.jetstream.offline:
        raise Unanswered
    found = find(request.stream(request.names[0]), asked)
    if found is None:
        raise errors.NO_MESSAGE_FOUND()
    message: Answer = {"subject": found.subject, "seq": found.seq}
    if found.headers and not asked.no_hdr:
        message["hdrs"] = b64encode(found.headers).decode()
    if found.payload:
        message["data"] = b64encode(found.payload).decode()
    message["time"] = time_text(found.ts_ns)
    return {"message": message}


def names_one(asked: MessageGetRequest) -> bool:
    """Whether the keys that are there go together and name a message."""
    seq, last, following = asked.seq > 0, bool(asked.last_by_subj), bool(asked.next_by_subj)
    start = asked.start_time is not None
    clash = (seq and (last or start)) or (last and (start or following))
    return not clash and (seq or last or following or start)


def find(stream: Stream, asked: MessageGetRequest) -> StoredMessage | None:
    seq = asked.seq
    if asked.start_time is not None:
        seq = stream.store.first_seq_from_time(store_ns(asked.start_time))
    if asked.next_by_subj:
        return stream.next_message(seq, asked.next_by_subj)
    if seq > 0:
        return stream.message(seq)
    return stream.last_message(asked.last_by_subj)


def delete(request: Request) -> Answer:
    request.demand_body()
    asked = request.decode(MessageDeleteRequest, "JSApiMsgDeleteRequest")
    stream = request.stream(request.names[0])
    if stream.config.sealed:
        raise errors.STREAM_SEALED()
    if stream.config.deny_delete:
        raise errors.STREAM_MSG_DELETE_FAILED(err="message delete not permitted")
    if not stream.delete_message(asked.seq, erase=not asked.no_erase):
        raise errors.SEQUENCE_NOT_FOUND(seq=asked.seq)
    return {"success": True}


ENDPOINTS: Final = (
    Endpoint(("STREAM", "MSG", "GET"), 1, "stream_msg_get_response", get, silent=True),
    Endpoint(("STREAM", "MSG", "DELETE"), 1, "stream_msg_delete_response", delete, lasting=True),
)
