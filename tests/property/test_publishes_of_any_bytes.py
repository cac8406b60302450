"""Whatever a client may publish, the stream goes on: an odd message is refused or stored, no more.

Subjects, headers and reply subjects are any bytes that the protocol lets through; the streams have
every feature that looks at them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.jetstream.ingest import StreamIngest
from tests.unit.jetstream.engine_world import EngineWorld

SECOND_NS = 1_000_000_000
ALL: dict[str, Any] = {
    "subjects": ["s.>"],
    "allow_msg_ttl": True,
    "allow_rollup_hdrs": True,
    "allow_msg_schedules": True,
    "allow_atomic": True,
    "allow_batched": True,
    "allow_direct": True,
    "max_age": 3 * SECOND_NS,
    "subject_delete_marker_ttl": 2 * SECOND_NS,
    "max_msgs_per_subject": 2,
    "duplicate_window": SECOND_NS,
}
KINDS: dict[str, dict[str, Any]] = {
    "all": ALL,
    "copied": ALL
    | {
        "subject_transform": {"src": "s.*", "dest": "s.new.{{wildcard(1)}}"},
        "republish": {"src": "s.>", "dest": "copy.>"},
    },
    "none": {"subjects": ["s.>"]},
    "counter": {"subjects": ["s.>"], "allow_msg_counter": True, "allow_atomic": True},
}
WORDS = st.sampled_from(
    [b"1", b"0", b"2", b"s.a", b"sub", b"all", b"never", b"purge", b"eob", b"@every 1s", b"@hourly",
     b"@at 2099-01-01T00:00:00Z", b"@at 0000-01-01T00:00:00Z", b"9" * 5000, b"-1", b"{}", b"s.\xff",
     b"\xff", b"\xed\xb0\x80", b"[" * 2000, b'{"reply":"a.b.1.ok.1.0.$FI"}', b"S 1 > s.a s.b"]
)  # fmt: skip
ODD = st.binary(max_size=12).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b""))
NAMES = st.sampled_from(
    [
        "Msg-Id",
        "Expected-Stream",
        "Expected-Last-Sequence",
        "TTL",
        "Expected-Last-Subject-Sequence",
        "Expected-Last-Subject-Sequence-Subject",
        "Expected-Last-Msg-Id",
        "Rollup",
        "Incr",
        "Schedule",
        "Schedule-Target",
        "Schedule-Source",
        "Schedule-TTL",
        "Schedule-Rollup",
        "Schedule-Time-Zone",
        "Schedule-Next",
        "Scheduler",
        "Batch-Id",
        "Batch-Sequence",
        "Batch-Commit",
        "Required-Api-Level",
        "Stream-Source",
        "Counter-Sources",
        "Request-Info",
        "Trace-Dest",
    ]
).map(lambda name: b"Nats-" + name.encode())
FIELDS = st.lists(st.tuples(NAMES, st.one_of(WORDS, ODD)), max_size=5)
TOKENS = st.one_of(
    st.sampled_from([b"1", b"0", b"2", b"ok", b"fail", b"f", b"\xff", b"9" * 600, b"x"]),
    st.binary(min_size=1, max_size=4).map(
        lambda raw: b"t" + bytes(byte for byte in raw if byte > 32 and byte not in b".*>")
    ),
)
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=3).map(lambda tokens: b"s." + b".".join(tokens))
REPLIES = st.one_of(
    st.just(b"r.1"),
    st.lists(TOKENS, min_size=1, max_size=6).map(lambda t: b"r." + b".".join(t) + b".$FI"),
)
PUBLISHES = st.lists(
    st.tuples(SUBJECTS, REPLIES, FIELDS, st.integers(0, 4)), min_size=1, max_size=8
)


def line_of(subject: bytes, reply: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    block = b"NATS/1.0\r\n" + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n"
    payload = b"" if any(name == b"Nats-Incr" for name, _ in fields) else b"x"
    sizes = b"%d %d" % (len(block), len(block) + len(payload))
    return b"HPUB %b %b %b\r\n%b%b\r\n" % (subject, reply, sizes, block, payload)


@pytest.mark.feature("3.001", "3.006")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(publishes=PUBLISHES)
def test_a_stream_outlives_every_publish(kind: str, publishes: list[Any]) -> None:
    world = EngineWorld()
    stream = world.create("S", **KINDS[kind])
    world.create("T", sources=[{"name": "S"}], allow_rollup_hdrs=True)
    for subject, reply, fields, wait_s in publishes:
        world.client.say(line_of(subject, reply, fields))
        world.run()
        world.pass_time(wait_s)
    world.pass_time(4)
    world.run()
    for each in (stream, world.stream("T")):
        assert isinstance(each.ingest, StreamIngest)
        assert each.ingest.sink.down is None
    assert not [text for text in world.warnings if "Error(" in text or "Traceback" in text]
    assert not world.client.transport_closed
