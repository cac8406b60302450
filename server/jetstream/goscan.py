"""Where a JSON text goes wrong, in the words of the reference's scanner. Only for bad texts."""

from __future__ import annotations

MAX_DEPTH = 10_000
END = "unexpected EOF"


class JsonError(Exception):
    """A body that is not JSON, or not of the type that was asked for."""


def wrong(data: bytes, at: int, context: str) -> JsonError:
    """The character at `at` does not belong there."""
    if at >= len(data):
        return JsonError(END)
    size = len(character(data, at).encode("utf-8", "surrogateescape"))
    return JsonError(f"invalid character {shown(data, at)} {context} at offset {at + size}")


def character(data: bytes, at: int) -> str:
    """The character there; a byte that begins none stands for itself."""
    return data[at : at + 4].decode("utf-8", "surrogateescape")[0]


def shown(data: bytes, at: int) -> str:
    byte = data[at]
    if byte == 0x27:
        return "'\\''"
    if byte == 0x22:
        return "'\"'"
    if 0x20 <= byte < 0x7F:
        return f"'{chr(byte)}'"
    if byte < 0x20 or byte == 0x7F:
        return f"'\\x{byte:02x}'" if byte not in b"\n\r\t" else f"'{repr(chr(byte))[1:-1]}'"
    text = character(data, at)
    if "\udc80" <= text <= "\udcff":
        return f"'\\x{byte:02x}'"
    return f"'{text}'" if text.isprintable() else f"'\\u{ord(text):04x}'"


def bad_escape(data: bytes, at: int, length: int) -> JsonError:
    """The escape at `at`, which should have so many characters, is none."""
    if at + length > len(data):
        return JsonError(END)
    text = data[at : at + length].decode("utf-8", "replace")
    return JsonError(f"invalid escape sequence `{text}` in string at offset {at + length}")
