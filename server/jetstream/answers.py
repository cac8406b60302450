"""What a publisher is told: PubAcks, refusals, flow messages of a fast batch."""

from __future__ import annotations

from server.jetstream import gojson
from server.jetstream.apierror import ApiError


def pub_ack_prefix(stream: str, domain: str = "") -> bytes:
    """A PubAck up to its sequence."""
    known = {"stream": stream, "domain": domain} if domain else {"stream": stream}
    return gojson.encode(known)[:-1] + b',"seq":'


def refusal(stream: str, error: ApiError) -> bytes:
    return gojson.encode({"error": error.shown(), "stream": stream, "seq": 0})


def batch_tail(batch_id: str, count: int, duplicate: bool = False) -> bytes:
    """A PubAck behind its sequence, for a batch."""
    known = gojson.encode({"batch": batch_id, "count": count})[1:]
    return (b',"duplicate": true,' if duplicate else b",") + known


def counter_tail(value: str) -> bytes:
    return b',"val":"%b"}' % value.encode()


def flow_ack(seq: int, messages: int) -> bytes:
    return gojson.encode({"type": "ack", "seq": seq, "msgs": messages})


def flow_gap(expected: int, current: int) -> bytes:
    return gojson.encode({"type": "gap", "last_seq": expected, "seq": current})


def flow_error(seq: int, error: ApiError) -> bytes:
    return gojson.encode({"type": "err", "seq": seq, "error": error.shown()})
