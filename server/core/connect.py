"""The CONNECT line's JSON."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class ConnectOptions(msgspec.Struct, frozen=True):
    """What a client says about itself. Values of missing keys are the reference's."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    tls_required: bool = False
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: Int64 = 0
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

    @property
    def claimed_user(self) -> str:
        """Who the client says it is, for logs and monitoring."""
        return self.nkey or self.user or ("[REDACTED]" if self.auth_token else "")


BEFORE_CONNECT = ConnectOptions()
_KEYS = dict(
    zip(ConnectOptions.__struct_encode_fields__, ConnectOptions.__struct_fields__, strict=True)
)
_SECRETS = re.compile(
    rb'("?\s*(?:auth_token\S*?|pass\S*?|proxy_sig|nkey|sig|jwt)"?\s*[:=]\s*"?)[^",\r\n}]*'
)


def decode_connect(line: bytes, before: ConnectOptions) -> ConnectOptions | None:
    """The options, or None when the JSON does not parse or a key has the wrong type.

    Keys are found in any case and a null is as good as a missing key. What is not mentioned stays
    as it was in `before`: the defaults, or an earlier CONNECT.
    """
    try:
        given = _decode_json(line)
        if given is None:
            return before
        folded = {
            key: value
            for name, value in given.items()
            if value is not None and (key := name.lower()) in _KEYS
        }
        options = msgspec.convert(folded, ConnectOptions)
    except (ValueError, RecursionError):
        return None
    if before is BEFORE_CONNECT:
        return options
    kept = {field: getattr(before, field) for key, field in _KEYS.items() if key not in folded}
    return msgspec.structs.replace(options, **kept)


def _decode_json(line: bytes) -> dict[str, Any] | None:
    try:
        given = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        given = _decode_with_replacements(line)
    if given is not None and not isinstance(given, dict):
        raise ValueError("not an object")
    return given


def _decode_with_replacements(line: bytes) -> Any:
    """For text that is not Unicode: as the reference does, with U+FFFD in the place of it."""
    given = json.loads(line.decode(errors="replace"), parse_constant=_refuse_constant)
    if not isinstance(given, dict):
        return given
    return {
        key: value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if isinstance(value, str)
        else value
        for key, value in given.items()
    }


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def redact_secrets(line: bytes) -> bytes:
    """The CONNECT line for a trace."""
    return _SECRETS.sub(rb"\1[REDACTED]", line)


def is_json_object(text: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
