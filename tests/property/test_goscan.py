"""The scanner of JSON texts accepts what Python's own decoder accepts, and nothing else."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.jetstream import gojson
from server.jetstream._goscan import Scanner, scan
from server.jetstream.goscan import JsonError

PIECES = [
    *'{}[],:"\\0-.e',
    "u00e9",
    "17",
    "true",
    "nul",
    '"a"',
    "null",
    " ",
    "\n",
    "\x00",
    "{}",
    "é",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=6,
)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def is_accepted(body: bytes) -> bool:
    try:
        return len(scan(body)) == 1
    except JsonError:
        return False


@settings(deadline=None)
@given(TEXTS)
def test_what_is_accepted(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert is_accepted(text.encode()) == is_json(text)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JSON, JSON)
def test_values_one_behind_the_other(first: object, second: object) -> None:
    texts = [json.dumps(each).encode() for each in (first, second)]
    body = b" %b\n%b " % (texts[0], texts[1])
    end = Scanner(body).value(1)
    assert body[1:end] == texts[0]
    assert [body[start:end] for start, end in scan(body)] == texts


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=9_000), st.integers(min_value=0, max_value=60))
def test_what_is_deep_or_long_is_read(depth: int, digits: int) -> None:
    body = b'{"a":' + b"[" * depth + b"]" * depth + b',"b":1' + b"0" * digits + b"}"
    if not depth:
        body = body.replace(b":,", b":1,")
    (found,) = gojson.values(body)
    assert list(found) == ["a", "b"]
