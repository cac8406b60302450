"""Nkeys: their text form and their signatures."""

from __future__ import annotations

import base64

import pytest

from server.auth.nkeys import (
    Kind,
    NkeyError,
    ServerIdentity,
    decode_public,
    decode_signature,
    encode_public,
    verify,
)

# A server key that the genuine server once made for itself.
FOREIGN = "NBQWOJD2SEQE6U3JDAG4R3DIAOF265C2DERZC42ZE6S7TZIMNTQTHIXJ"


@pytest.fixture
def identity() -> ServerIdentity:
    return ServerIdentity(bytes(range(32)), bytes(range(1, 33)))


@pytest.mark.feature("1-003", "1-005")
def test_a_server_has_an_n_key_and_an_x_key(identity: ServerIdentity) -> None:
    assert (identity.server_id[0], len(identity.server_id)) == ("N", 56)
    assert (identity.curve_public[0], len(identity.curve_public)) == ("X", 56)


@pytest.mark.parametrize(("kind", "letter"), [(Kind.USER, "U"), (Kind.ACCOUNT, "A")])
def test_the_first_letter_tells_the_kind(kind: Kind, letter: str) -> None:
    text = encode_public(kind, bytes(32))
    assert text[0] == letter
    assert decode_public(kind, text) == bytes(32)


def test_a_foreign_key_is_read_and_written_the_same() -> None:
    assert encode_public(Kind.SERVER, decode_public(Kind.SERVER, FOREIGN)) == FOREIGN


@pytest.mark.parametrize(
    "text", ["", "N", FOREIGN[:-1], FOREIGN[:-1] + "A", FOREIGN.lower(), FOREIGN[:-1] + "!"]
)
def test_damaged_keys_are_refused(text: str) -> None:
    with pytest.raises(NkeyError):
        decode_public(Kind.SERVER, text)


def test_a_key_of_another_kind_is_refused() -> None:
    with pytest.raises(NkeyError, match="not a public user nkey"):
        decode_public(Kind.USER, FOREIGN)


@pytest.mark.feature("4-005")
def test_a_signature_holds_for_its_message_and_key_alone(identity: ServerIdentity) -> None:
    signature = identity.sign(b"nonce")
    assert verify(Kind.SERVER, identity.server_id, b"nonce", signature)
    assert not verify(Kind.SERVER, identity.server_id, b"nonze", signature)
    assert not verify(Kind.SERVER, FOREIGN, b"nonce", signature)
    assert not verify(Kind.SERVER, identity.server_id, b"nonce", signature[:-1])
    assert not verify(Kind.SERVER, "nonsense", b"nonce", signature)


@pytest.mark.feature("1-025")
def test_signatures_come_as_url_safe_or_standard_base64() -> None:
    raw = bytes([251, 255, 190]) * 21 + b"x"
    assert decode_signature(base64.urlsafe_b64encode(raw).decode().rstrip("=")) == raw
    assert decode_signature(base64.b64encode(raw).decode()) == raw
    assert decode_signature("not base64!") is None
    assert decode_signature("signé") is None
