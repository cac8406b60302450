"""The CONNECT line: what the reference's JSON reader takes, and what it does not."""

from __future__ import annotations

import pytest

from server.core.connect import BEFORE_CONNECT, ConnectOptions, decode_connect


def decoded(text: bytes, before: ConnectOptions = BEFORE_CONNECT) -> ConnectOptions:
    options = decode_connect(text, before)
    assert options is not None
    return options


@pytest.mark.feature("1-024")
def test_missing_and_null_keys_have_defaults() -> None:
    assert decoded(b"{}") == decoded(b"null") == BEFORE_CONNECT
    assert decoded(b'{"verbose":null,"name":null}') == BEFORE_CONNECT


@pytest.mark.feature("1-023")
def test_keys_in_any_case_and_unknown_ones() -> None:
    options = decoded(b'{"VERBOSE":false,"Pass":"x","unheard":[1,{"of":null}]}')
    assert (options.verbose, options.password) == (False, "x")


@pytest.mark.feature("1-031")
def test_a_second_connect_keeps_what_it_does_not_mention() -> None:
    before = decoded(b'{"verbose":false,"name":"n"}')
    assert decoded(b'{"name":"m","verbose":null}', before).verbose is False
    assert decoded(b'{"name":"m"}', before).name == "m"


@pytest.mark.parametrize("text", [b'{"name":"\xff"}', b'{"name":"\\ud800"}'])
def test_text_that_is_not_unicode_is_replaced(text: bytes) -> None:
    assert decoded(text).name == "\ufffd"


@pytest.mark.feature("1-030")
@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"5", b'{"verbose":1}', b'{"protocol":1.5}', b'{"name":5}',
        b'{"protocol":99999999999999999999}', b'{\xff"name":1}', b'{"x":NaN,"name":"\xff"}',
        b'{"x":' + b"[" * 4000, b'{"x":' + b"[" * 1900 + b"]" * 1900 + b"}",
    ],
)  # fmt: skip
def test_refused(text: bytes) -> None:
    assert decode_connect(text, BEFORE_CONNECT) is None
