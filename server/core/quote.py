"""Bytes of a peer inside a text line, quoted as the reference quotes them."""

from __future__ import annotations

_SHORT = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


def _quote_char(char: str) -> str:
    short = _SHORT.get(char)
    if short is not None:
        return short
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if char.isprintable():
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quote(raw: bytes) -> str:
    """Double quotes around the text; what is not printable or not UTF-8 is escaped."""
    text = raw.decode("utf-8", "surrogateescape")
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_quote_char, text)) + '"'


def sub_violation(subject: bytes, queue: bytes) -> str:
    text = f"Permissions Violation for Subscription to {quote(subject)}"
    return f"{text} using queue {quote(queue)}" if queue else text
