"""The parser against its twin, however the bytes are cut."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.wire._parser import Recorder
from tests.property.oracles.parser import parse

BLANKS = st.sampled_from([b" ", b"\t", b"  ", b" \t "])
LINE_ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n"])
WORDS = st.one_of(
    st.sampled_from([b"foo", b"foo.bar", b"*", b">", b"a..b", b"\xff\xfe", b"caf\xc3\xa9"]),
    st.binary(min_size=1, max_size=70).map(lambda raw: raw.translate(None, b" \t\r\n") or b"x"),
)


@st.composite
def spelled(draw: st.DrawFn, verb: bytes) -> bytes:
    return bytes(
        byte ^ 0x20 if draw(st.booleans()) and chr(byte).isalpha() else byte for byte in verb
    )


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    payload = draw(st.binary(max_size=200))
    words = [draw(WORDS)]
    if draw(st.booleans()):
        words.append(draw(WORDS))
    verb = b"PUB"
    if draw(st.booleans()):
        verb = b"HPUB"
        words.append(b"%d" % draw(st.integers(0, len(payload))))
    words.append(b"%d" % len(payload))
    verb = draw(st.one_of(st.just(verb), spelled(verb)))
    blank = draw(BLANKS)
    return blank.join([verb, *words]) + draw(LINE_ENDS) + payload + b"\r\n"


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    verb = draw(
        st.sampled_from(
            [b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR", b"sub", b"X"]
        )
    )
    words = draw(st.lists(WORDS, max_size=4))
    return draw(BLANKS).join([verb, *words]) + draw(LINE_ENDS)


STREAMS = st.lists(
    st.one_of(publishes(), publishes().map(lambda one: one * 3), lines(), st.binary(max_size=12)),
    max_size=6,
).map(b"".join)


def events_of(data: bytes, cuts: list[int], limit: int, headers: bool) -> list[tuple[object, ...]]:
    recorder = Recorder(limit, headers)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    for begin, end in itertools.pairwise(edges):
        recorder.feed(data[begin:end])
    return recorder.events


@pytest.mark.feature("1-039", "1-040", "1-041", "1-042", "1-043", "1-050")
@settings(deadline=None)
@given(
    STREAMS, st.lists(st.integers(0, 700), max_size=8), st.sampled_from([4096, 24]), st.booleans()
)
def test_any_cutting_gives_the_twins_events(
    data: bytes, cuts: list[int], limit: int, headers: bool
) -> None:
    expected = parse(data, limit, headers)
    assert events_of(data, [], limit, headers) == expected
    assert events_of(data, cuts, limit, headers) == expected
    assert events_of(data, list(range(len(data))), limit, headers) == expected


def test_a_long_stream_in_random_pieces() -> None:
    rng = random.Random(7)
    pieces = []
    for _ in range(3000):
        size = rng.choice([0, 1, 2, 16, 128, 5000])
        subject = rng.choice([b"a", b"orders.eu", b"x" * 60, b"y" * 90])
        pieces.append(
            b"PUB %b %d\r\n%b\r\n" % (subject, size, rng.randbytes(size)) * rng.randint(1, 3)
        )
    data = b"".join(pieces)
    recorder = Recorder()
    at = 0
    while at < len(data):
        step = rng.choice([1, 7, 100, 4096, 70000])
        recorder.feed(data[at : at + step])
        at += step
    assert recorder.events == parse(data)
    assert recorder.rest == b""


@pytest.mark.feature("1-050")
@pytest.mark.parametrize("begin", [b"PUB ", b"SUB ", b"CONNECT ", b"INFO ", b"-ERR ", b"UNSUB "])
def test_a_line_without_end_is_a_fault_with_bounded_memory(begin: bytes) -> None:
    recorder = Recorder()
    recorder.feed(begin)
    for _ in range(100):
        recorder.feed(b"x" * 1000)
        assert len(recorder.rest) <= 4096 + 1000
    assert recorder.events == [("fault", "control line")]


@pytest.mark.parametrize("begin", [b"PING", b"PONG", b"+OK", b"PUB "])
def test_what_has_no_limit_is_not_kept(begin: bytes) -> None:
    recorder = Recorder()
    recorder.feed(begin)
    for _ in range(100):
        recorder.feed(b" " * 1000)
    assert recorder.rest == b""
    assert recorder.events == []
