"""The API level a request may ask for."""

from __future__ import annotations

import re

from server.version import API_LEVEL

NUMBER = re.compile(rb"[+-]?[0-9]+")


def beyond_api_level(text: bytes) -> bool:
    """Whether a `Nats-Required-Api-Level` asks for more than this server has."""
    return NUMBER.fullmatch(text) is None or int(text[:24]) > API_LEVEL
