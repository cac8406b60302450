"""The API level that a message may ask for."""

from __future__ import annotations

import re
from typing import Final

from server.version import JETSTREAM_API_LEVEL

NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}")
LEVEL_HEADER: Final = b"Nats-Required-Api-Level"


def beyond_api_level(text: bytes) -> bool:
    """Whether a `Nats-Required-Api-Level` asks for more than this server has."""
    return NUMBER.fullmatch(text) is None or int(text) > JETSTREAM_API_LEVEL


def needs_newer_level(block: bytes) -> bool:
    """Whether a message's headers demand more than this server's API level."""
    at = block.find(b"\r\n" + LEVEL_HEADER + b":")
    if at < 0:
        return False
    start = at + len(LEVEL_HEADER) + 3
    wanted = block[start : block.find(b"\r\n", start)].lstrip(b" ")
    return bool(wanted) and beyond_api_level(wanted)
