"""Header blocks of published messages, read and rewritten as the reference does it.

A block is `NATS/1.0[ status]\\r\\n`, fields, `\\r\\n`; names are compared exactly, the first of
equal names counts. The ingest reads plain ones itself; this is for what comes to Python.
"""

from __future__ import annotations

from typing import Final

LINE: Final = b"NATS/1.0\r\n"
EMPTY: Final = b"NATS/1.0\r\n\r\n"
NUMBER_DIGITS_MAX: Final = 20


def value(block: bytes, name: bytes) -> bytes | None:
    """The first field `name`, without blanks before it; None when it is not there."""
    at = block.find(b"\r\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 3
    while block[start : start + 1] == b" ":
        start += 1
    end = block.find(b"\r\n", start)
    return block[start : end if end >= 0 else len(block)]


def text(block: bytes, name: bytes) -> str:
    """The first field `name` as text, empty when it is not there."""
    return (value(block, name) or b"").decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """The bytes behind a text that a publisher wrote: they need not be UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def removed(block: bytes, name: bytes) -> bytes:
    """Without the fields `name`; nothing at all when no field is left."""
    return _without(block, b"\n" + name + b":")


def removed_prefix(block: bytes, prefix: bytes) -> bytes:
    """Without the fields whose names begin with `prefix`."""
    return _without(block, b"\n" + prefix)


def _without(block: bytes, mark: bytes) -> bytes:
    """In one pass: a block may have thousands of them before anybody looks at its size."""
    kept, done = [], 0
    start = block.find(mark) + 1
    while start:
        end = block.find(b"\r\n", start)
        if end < 0:
            break
        kept.append(block[done:start])
        done = end + 2
        start = block.find(mark, done - 1) + 1
    if not kept:
        return block
    rest = b"".join([*kept, block[done:]])
    return rest if len(rest) > len(EMPTY) else b""


def added(block: bytes, name: bytes, field: bytes) -> bytes:
    """With one more field at the end."""
    clean = field.replace(b"\r", b" ").replace(b"\n", b" ").strip(b" \t")
    begun = block[:-2] if len(block) > 2 else LINE
    return begun + name + b": " + clean + b"\r\n\r\n"


def replaced(block: bytes, name: bytes, field: bytes) -> bytes:
    """With `field` in place of the first one of its name, or at the end."""
    at = block.find(b"\r\n" + name + b":")
    if at < 0:
        return (
            (block[:-2] if block.endswith(b"\r\n") else block) + name + b": " + field + b"\r\n\r\n"
        )
    start = at + len(name) + 3
    if block[start : start + 1] == b" ":
        start += 1
    end = block.find(b"\r", start)
    return block[:start] + field + block[end:] if end >= 0 else block


def without_status(block: bytes) -> bytes:
    """A published block carries no status: it is dropped, and the block too if it had only that."""
    end = block.find(b"\r")
    if not block.startswith(b"NATS/1.0") or end <= 8:
        return block
    block = block[:8] + block[end:]
    return b"" if len(block) == len(EMPTY) else block


def number(field: bytes) -> int:
    """An unsigned number of 64 bits; -1 when it is none."""
    digits = field.lstrip(b"0") or field[-1:]
    found = int(digits) if digits.isdigit() and len(digits) <= NUMBER_DIGITS_MAX else -1
    return found if found < 2**64 else -1


def wrapped_number(field: bytes) -> int:
    """A number as the reference reads most: it runs over at 64 bits, signed; -1 when it is none."""
    if not field.isdigit():
        return -1
    # 10**64 is a multiple of 2**64: what stands before the last 64 digits changes nothing.
    found = int(field[-64:]) % 2**64
    return found if found < 2**63 else found - 2**64
