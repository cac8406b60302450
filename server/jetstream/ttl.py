"""A message's time to live as its header says it."""

from __future__ import annotations

from typing import Final

from config.duration import DurationError, parse_duration
from server.jetstream import headers

NEVER: Final = -1
SECOND_NS: Final = 1_000_000_000
NS_MAX: Final = (2**63 - 1) // 4


class TtlError(ValueError):
    """The text is no time to live."""


def ttl_seconds(text: bytes) -> int:
    """Whole seconds, a Go duration of at least one second, or "never" (-1); 0: no text."""
    if not text:
        return 0
    word = text.decode("utf-8", "surrogateescape")
    if word.lower() == "never":
        return NEVER
    try:
        duration_ns = parse_duration(word)
    except DurationError:
        seconds = headers.wrapped_number(text)
        if seconds < 0:
            raise TtlError(word) from None
        return seconds
    if duration_ns < SECOND_NS:
        raise TtlError(word)
    return duration_ns // SECOND_NS


def ttl_ns(seconds: int) -> int:
    """For the store; what is longer than its clock can count ends when that does."""
    return seconds if seconds <= 0 else min(seconds * SECOND_NS, NS_MAX)
