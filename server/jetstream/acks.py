"""What stands in acknowledgements: how long a negative one asks to wait; whose the subject is."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from config.duration import parse_duration
from server.jetstream.gojson import DURATION, decode_one
from server.jetstream.goscan import JsonError
from server.jetstream.shorthash import short_hash

NO_DOMAIN: Final = "_"


class NakOptions(Struct):
    delay: Annotated[int, DURATION] = 0


def nak_delay_ns(argument: bytes) -> int | None:
    """What stands behind `-NAK`: JSON or a duration's text. None: it is neither."""
    try:
        if argument.startswith(b"{"):
            return decode_one(NakOptions, argument, "").delay
        return parse_duration(argument.decode())
    except (JsonError, ValueError):
        return None


def ack_place(domain: str, account: str) -> bytes:
    """The two tokens of the longer ack subjects that name where a stream lives."""
    return f"{domain or NO_DOMAIN}.{short_hash(account)}".encode()
