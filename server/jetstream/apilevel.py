"""The API level that a message may ask for."""

from __future__ import annotations

import re
from typing import Final

from server.version import JETSTREAM_API_LEVEL

NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}")


def beyond_api_level(text: bytes) -> bool:
    """Whether a `Nats-Required-Api-Level` asks for more than this server has."""
    return NUMBER.fullmatch(text) is None or int(text) > JETSTREAM_API_LEVEL
