"""The CONNECT line's JSON."""

from __future__ import annotations

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


def decode_connect(line: bytes) -> ConnectOptions | None:
    """The options, or None when the JSON does not parse or a key has the wrong type."""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
