"""The CONNECT line's JSON."""

from __future__ import annotations

import re

import msgspec


class ConnectOptions(msgspec.Struct, frozen=True):
    """What a client says about itself. Values of missing keys are the reference's."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    tls_required: bool = False
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0
    headers: bool = False
    no_responders: bool = False
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    nkey: str = ""
    sig: str = ""
    jwt: str = ""
    proxy_sig: str = ""
    account: str = ""
    new_account: bool = False


BEFORE_CONNECT = ConnectOptions()
_decoder = msgspec.json.Decoder(ConnectOptions)
_SECRETS = re.compile(
    rb'("?\s*(?:auth_token\S*?|pass\S*?|proxy_sig|nkey|sig)"?\s*[:=]\s*"?)[^",\r\n}]*'
)


def decode_connect(line: bytes, before: ConnectOptions) -> ConnectOptions | None:
    """The options, or None when the JSON does not parse or a key has the wrong type.

    A second CONNECT keeps what it does not mention from the first, `before`.
    """
    try:
        options = _decoder.decode(line)
        if before is BEFORE_CONNECT:
            return options
        mentioned = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    kept = {
        field: getattr(before, field)
        for field, key in zip(
            ConnectOptions.__struct_fields__, ConnectOptions.__struct_encode_fields__, strict=True
        )
        if key not in mentioned
    }
    return msgspec.structs.replace(options, **kept)


def redact_secrets(line: bytes) -> bytes:
    """The CONNECT line for a trace."""
    return _SECRETS.sub(rb"\1[REDACTED]", line)
