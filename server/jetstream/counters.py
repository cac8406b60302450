"""Counters: signed whole numbers of any size, kept as text in messages."""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any, Final

import msgspec

from server.jetstream import gojson, headers

SOURCES: Final = b"Nats-Counter-Sources"
# Python's integers refuse long texts and are slow on them; this is exact up to 64 KiB of digits.
EXACT: Final = Context(prec=131_072, Emax=MAX_EMAX, Emin=MIN_EMIN)
WHOLE: Final = re.compile(r"[+-]?[0-9]+")


class CounterBroken(Exception):
    """What is stored is no counter."""


def increment(text: str) -> Decimal | None:
    """A whole number with an optional sign; None when it is none."""
    return EXACT.create_decimal(text) if WHOLE.fullmatch(text) else None


def total(payload: bytes) -> Decimal:
    """The value of a stored counter."""
    try:
        found = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CounterBroken from None
    if found is None:
        return Decimal(0)
    if not isinstance(found, dict):
        raise CounterBroken
    return increment(value_of(found)) or Decimal(0)


def value_of(found: dict[str, Any]) -> str:
    value = ""
    for key, each in found.items():
        if key.lower() == "val" and each is not None:
            if not isinstance(each, str):
                raise CounterBroken
            value = each
    return value


Sources = dict[str, dict[str, str]]
"""By origin and its subject, what its counter said last."""


def sources(block: bytes) -> Sources:
    """What the header of an aggregated counter remembers of its origins."""
    text = headers.value(block, SOURCES)
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=Sources)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CounterBroken from None


def with_sources(block: bytes, found: Sources) -> bytes:
    ordered = {name: dict(sorted(found[name].items())) for name in sorted(found)}
    return headers.replaced(block or headers.EMPTY, SOURCES, gojson.encode(ordered))


def value(text: str) -> Decimal:
    """A remembered total; what is no number counts as nothing."""
    return increment(text) or Decimal(0)


def subtract(one: Decimal, other: Decimal) -> Decimal:
    return EXACT.subtract(one, other)


def add(before: Decimal, change: Decimal) -> Decimal:
    return EXACT.add(before, change)


def text(value: Decimal) -> str:
    return format(abs(value) if value == 0 else value, "f")


def payload(value: Decimal) -> bytes:
    return b'{"val":"%b"}' % text(value).encode()
