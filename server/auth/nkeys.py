"""Nkeys: ed25519 and x25519 keys in the text form `<kind letter><55 base32 characters>`.

A public key is base32(kind byte, 32 key bytes, CRC-16 little endian) without padding.
"""

from __future__ import annotations

import base64
import binascii
from enum import IntEnum

from nacl import bindings
from nacl.exceptions import BadSignatureError


class Kind(IntEnum):
    """The first byte; its upper five bits are the letter people see."""

    USER = 20 << 3
    ACCOUNT = 0
    SERVER = 13 << 3
    CLUSTER = 2 << 3
    OPERATOR = 14 << 3
    CURVE = 23 << 3


class NkeyError(ValueError):
    """The text is not a public key, or not of the kind that was asked for."""


def crc16(data: bytes) -> int:
    """CRC-16/XMODEM."""
    return binascii.crc_hqx(data, 0)


def encode_public(kind: Kind, key: bytes) -> str:
    raw = bytes([kind]) + key
    return base64.b32encode(raw + crc16(raw).to_bytes(2, "little")).decode().rstrip("=")


def decode_public(kind: Kind, text: str) -> bytes:
    """The 32 bytes of the key."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError as error:
        raise NkeyError(f"{text!r} is not a public nkey: {error}") from error
    if len(raw) != 35 or raw[0] != kind:
        raise NkeyError(f"{text!r} is not a public {kind.name.lower()} nkey")
    if crc16(raw[:-2]) != int.from_bytes(raw[-2:], "little"):
        raise NkeyError(f"the checksum of the nkey {text!r} is wrong")
    return raw[1:-2]


def verify(kind: Kind, public: str, message: bytes, signature: bytes) -> bool:
    """Whether `signature` is `message` signed by the key `public`."""
    if len(signature) != bindings.crypto_sign_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + message, decode_public(kind, public))
    except (NkeyError, BadSignatureError):
        return False
    return True


def decode_signature(text: str) -> bytes | None:
    """CONNECT's `sig`: unpadded URL-safe base64, or standard base64; None if it is neither."""
    # A plain ValueError is what text beyond ASCII gives.
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


class ServerIdentity:
    """The keys of one server start. They are never written anywhere."""

    def __init__(self, seed: bytes, curve_seed: bytes) -> None:
        public, self._secret = bindings.crypto_sign_seed_keypair(seed)
        self.server_id = encode_public(Kind.SERVER, public)
        self.curve_secret = curve_seed
        self.curve_public = encode_public(Kind.CURVE, bindings.crypto_scalarmult_base(curve_seed))

    def sign(self, message: bytes) -> bytes:
        signed: bytes = bindings.crypto_sign(message, self._secret)
        return signed[: bindings.crypto_sign_BYTES]
