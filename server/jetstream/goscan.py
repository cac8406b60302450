"""Where a JSON text goes wrong, in the words of the reference's scanner. Only for bad texts."""

from __future__ import annotations

import re

MAX_DEPTH = 10_000
BLANKS = b" \t\r\n"
NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
HEX = re.compile(rb"[0-9a-fA-F]*")
LITERALS = {b"t": b"true", b"f": b"false", b"n": b"null"}
END = "unexpected EOF"


class JsonError(Exception):
    """A body that is not JSON, or not of the type that was asked for."""


def scan(data: bytes) -> list[tuple[int, int]]:
    """Start and end of each value; JsonError with the first mistake."""
    pieces = []
    at = skip_blanks(data, 0)
    while at < len(data):
        end = Scanner(data).value(at)
        pieces.append((at, end))
        at = skip_blanks(data, end)
    return pieces


def skip_blanks(data: bytes, at: int) -> int:
    while at < len(data) and data[at] in BLANKS:
        at += 1
    return at


def wrong(data: bytes, at: int, context: str) -> JsonError:
    """The character at `at` does not belong there."""
    if at >= len(data):
        return JsonError(END)
    size = len(character(data, at).encode()) if data[at] >= 0x80 else 1
    return JsonError(f"invalid character {shown(data, at)} {context} at offset {at + size}")


def character(data: bytes, at: int) -> str:
    return data[at : at + 4].decode("utf-8", "replace")[0]


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
    return f"'{text}'" if text.isprintable() else f"'\\u{ord(text):04x}'"


class Scanner:
    """Walks one value without recursion: a stack of what is open."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.open: list[int] = []

    def value(self, at: int) -> int:
        while True:
            at = self.begin(at)
            if self.open and at < 0:
                at = -at
                continue
            at = self.close(abs(at))
            if at >= 0:
                return at
            at = -at

    def begin(self, at: int) -> int:
        """Past one scalar or empty bracket; negative: a bracket was opened, go on inside."""
        data = self.data
        at = skip_blanks(data, at)
        byte = data[at : at + 1]
        if byte in (b"{", b"["):
            return self.enter(at, byte)
        if byte == b'"':
            return self.string(at)
        if byte in LITERALS:
            return self.literal(at, LITERALS[byte])
        if byte == b"-" or byte.isdigit():
            return self.number(at)
        raise wrong(data, at, "looking for beginning of value")

    def enter(self, at: int, bracket: bytes) -> int:
        self.open.append(bracket[0])
        if len(self.open) > MAX_DEPTH:
            raise JsonError(f"exceeded max depth at offset {at + 1}")
        inside = skip_blanks(self.data, at + 1)
        if self.data[inside : inside + 1] == (b"}" if bracket == b"{" else b"]"):
            self.open.pop()
            return inside + 1
        return -(self.key(inside) if bracket == b"{" else inside)

    def key(self, at: int) -> int:
        """Past a key and its colon."""
        data = self.data
        at = skip_blanks(data, at)
        if data[at : at + 1] != b'"':
            raise wrong(data, at, "looking for beginning of object key string")
        at = skip_blanks(data, self.string(at))
        if data[at : at + 1] != b":":
            raise wrong(data, at, "after object key")
        return at + 1

    def close(self, at: int) -> int:
        """After a value: close what ends here. Negative: another value is to come."""
        data = self.data
        while self.open:
            at = skip_blanks(data, at)
            byte, inside_object = data[at : at + 1], self.open[-1] == 0x7B
            if byte == b",":
                at = skip_blanks(data, at + 1)
                return -(self.key(at) if inside_object else at)
            if byte != (b"}" if inside_object else b"]"):
                what = "object key:value pair" if inside_object else "array element"
                raise wrong(data, at, f"after {what}")
            self.open.pop()
            at += 1
        return at

    def string(self, at: int) -> int:
        data = self.data
        at += 1
        while True:
            found = PLAIN.match(data, at)
            at = found.end() if found else at
            byte = data[at : at + 1]
            if byte == b'"':
                return at + 1
            if byte != b"\\":
                raise wrong(data, at, "in string")
            at = self.escape(at)

    def escape(self, at: int) -> int:
        data = self.data
        mark = data[at + 1 : at + 2]
        if mark == b"u":
            found = HEX.match(data, at + 2, at + 6)
            digits = found.end() - at - 2 if found else 0
            if digits == 4:
                return at + 6
            length = 6
        elif mark and mark in b'"\\/bfnrt':
            return at + 2
        else:
            length = 2
        if at + length > len(data):
            raise JsonError(END)
        text = data[at : at + length].decode("utf-8", "replace")
        raise JsonError(f"invalid escape sequence `{text}` in string at offset {at + length}")

    def literal(self, at: int, word: bytes) -> int:
        for offset in range(1, len(word)):
            if self.data[at + offset : at + offset + 1] != word[offset : offset + 1]:
                context = f"in literal {word.decode()} (expecting '{chr(word[offset])}')"
                raise wrong(self.data, at + offset, context)
        return at + len(word)

    def number(self, at: int) -> int:
        data = self.data
        found = NUMBER.match(data, at)
        end = found.end() if found else at + 1
        byte = data[end : end + 1]
        if not found:
            raise wrong(data, end, "in numeric literal")
        if (byte == b"." and b"." not in data[at:end]) or (byte and byte in b"eE"):
            end += 1
            if data[end : end + 1] and data[end : end + 1] in b"+-":
                end += 1
            raise wrong(data, end, "in numeric literal")
        return end
