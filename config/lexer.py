"""The NATS configuration grammar: text in, tokens with offsets out.

The grammar is forgiving and odd in places, and files in the field rely on both:
- a bare word ends at blanks, line ends, `,` `;` `]` `}`; it may start with `#` or contain `//`;
- a value that starts like a number becomes a text at the first character that does not fit;
- outside of maps the value must stand on the line of its `=` or `:`, or anywhere if it has none;
- braces around the whole file are decoration.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from config import limits
from config.errors import ConfigError, Problem, Source, is_text


class Kind:
    """What a token is; plain numbers, because an enum costs a millisecond at every start."""

    KEY: Final = 1
    STRING: Final = 2
    INTEGER: Final = 3
    FLOAT: Final = 4
    BOOL: Final = 5
    DATE: Final = 6
    VARIABLE: Final = 7
    INCLUDE: Final = 8
    MAP_START: Final = 9
    MAP_END: Final = 10
    ARRAY_START: Final = 11
    ARRAY_END: Final = 12


class Token(Struct, frozen=True, gc=False):
    kind: int
    value: str | int | float | bool
    offset: int


BOOLS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
QUOTE_HINT: Final = "put it in quotes if it is a text, such as a password"

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_SUFFIX_POWERS: Final = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_NUMBER_ENDS: Final = "\n\r};, \t]"
_SPACES: Final = re.compile(r"\s*")
_BLANKS: Final = re.compile(r"[ \t]*")
_BARE_KEY: Final = re.compile(r"[^\0][^\s=:\0]*")
_BARE: Final = re.compile(r"[^\n\r;,\]} \t\\'\0]*")
_NUMBER: Final = re.compile(r"-?([0-9]+)(?:([kKmMgGtTpPeE])([bBiI]*)|(\.)([0-9]*))?")
_ADDRESS: Final = re.compile(r"[0-9.:-]*")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_BLOCK_END: Final = re.compile(r"\n\)(?=\n|\Z)")
_INCLUDE_PATH: Final = re.compile(r"[^\n\r;}\s'\0]*")


def lex(source: Source) -> list[Token]:
    """All tokens of a text; ConfigError at the first place that is none."""
    return _Lexer(source).run()


def lex_scalar(source: Source, text: str, offset: int) -> Token:
    """The token of one bare value that is known to be complete, whatever it contains."""
    lexer = _Lexer(Source(source.name, text))
    try:
        lexer.value()
    except ConfigError:
        return Token(Kind.STRING, text, offset)
    complete = lexer.at == len(text) and len(lexer.tokens) == 1
    if not complete or lexer.tokens[0].kind == Kind.STRING:
        return Token(Kind.STRING, text, offset)
    return replace(lexer.tokens[0], offset=offset)


class _Lexer:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.at = 0
        self.depth = 0
        self.tokens: list[Token] = []

    def run(self) -> list[Token]:
        self.entries(closing=False)
        return self.tokens

    # --- entries of the file

    def entries(self, closing: bool) -> None:
        """Keys and values of the file, or of braces around them if `closing`."""
        while char := self.next_entry():
            if char == "{":
                self.at += 1
                self.nested(lambda: self.entries(closing=True))
            elif char == "}" and closing:
                self.at += 1
                return
            elif char == "}" and self.text[self.at :].strip() == "}":
                return
            elif closing and char in ",;":
                self.at += 1
            else:
                self.entry(in_map=False)
                self.end_of_entry(closing)

    def end_of_entry(self, closing: bool) -> None:
        char = self.after_value()
        if char == "}" and closing:
            return
        if char and char in "\n\r;,}":
            self.at += 1
        elif char or closing:
            self.fail_after_value(char)

    # --- maps and arrays

    def map(self) -> None:
        self.emit(Kind.MAP_START, "", self.at)
        self.at += 1
        while (char := self.next_entry()) != "}":
            if not char:
                self.fail("the file ends inside a map: a `}` is missing")
            if char == "]":
                self.fail("unexpected `]` in a map")
            self.entry(in_map=True)
            self.end_of_member()
        self.emit(Kind.MAP_END, "", self.at)
        self.at += 1

    def end_of_member(self) -> None:
        char = self.after_value()
        if char and char in "\n\r;,":
            self.at += 1
        elif char != "}":
            self.fail_after_value(char)

    def array(self) -> None:
        self.emit(Kind.ARRAY_START, "", self.at)
        self.at += 1
        while (char := self.next_entry()) != "]":
            if not char:
                self.fail("the file ends inside an array: a `]` is missing")
            if char == ",":
                self.fail("expected a value before `,`")
            self.value()
            char = self.after_value()
            if char and char in "\n\r,":
                self.at += 1
            elif char != "]":
                self.fail_after_value(char)
        self.emit(Kind.ARRAY_END, "", self.at)
        self.at += 1

    # --- a key and its value

    def entry(self, in_map: bool) -> None:
        key = self.key()
        if key is None:
            return
        self.skip(_SPACES)
        char = self.peek()
        if char and char in "=:":
            self.at += 1
            self.skip(_SPACES if in_map else _BLANKS)
            char = self.peek()
            if char and char in "\n\r":
                self.fail(f'expected the value of "{key.value}" on the same line')
        elif not char:
            self.fail(f'"{key.value}" has no value', key.offset)
        if in_map and (not char or char in ",}"):
            self.fail(f'"{key.value}" has no value', key.offset)
        self.value()

    def key(self) -> Token | None:
        """Emit a key; None if it was an include, which is then emitted whole."""
        char = self.peek()
        if char in "=:":
            self.fail(f"unexpected `{char}`: expected a key")
        if char in "\"'":
            start, self.at = self.at + 1, self.text.find(char, self.at + 1)
            if self.at < 0:
                self.fail("a quoted key has no end", start - 1)
            text = self.text[start : self.at]
            self.at += 1
        else:
            start = self.at
            text = self.skip(_BARE_KEY)
            if text.lower() == "include" and self.peek().isspace():
                self.include()
                return None
        self.emit(Kind.KEY, text, start)
        return self.tokens[-1]

    def include(self) -> None:
        self.skip(_BLANKS)
        start, char = self.at, self.peek()
        if char and char in "\"'":
            end = self.text.find(char, start + 1)
            if end < 0:
                self.fail("the quoted path of an include has no end", start)
            self.emit(Kind.INCLUDE, self.text[start + 1 : end], start)
            self.at = end + 1
        elif not char or char in "[{(-\\\n\r" or char.isdigit():
            self.fail("expected a path after include")
        else:
            self.emit(Kind.INCLUDE, self.skip(_INCLUDE_PATH), start)
            self.at += self.peek() == "'"

    def value(self) -> None:
        char = self.peek()
        if char == "{":
            self.nested(self.map)
        elif char == "[":
            self.nested(self.array)
        elif char == "'":
            self.single_quoted()
        elif char == '"':
            self.double_quoted()
        elif char == "(":
            self.block()
        elif char == "-" or "0" <= char <= "9":
            self.number()
        elif char == ".":
            self.fail(f"a number starts with a digit, not with a dot: {QUOTE_HINT}")
        else:
            self.bare(self.at)

    # --- texts

    def single_quoted(self) -> None:
        start = self.at + 1
        end = self.text.find("'", start)
        if end < 0:
            self.fail("a quoted text has no end")
        self.at = end + 1
        self.emit(Kind.STRING, self.text[start:end], start)

    def double_quoted(self) -> None:
        start = from_here = self.at + 1
        parts: list[str] = []
        while True:
            end = self.text.find('"', from_here)
            if end < 0:
                self.fail("a quoted text has no end", start - 1)
            backslash = self.text.find("\\", from_here, end)
            if backslash < 0:
                break
            parts.append(self.text[from_here:backslash])
            self.at = backslash + 1
            parts.append(self.escape())
            from_here = self.at
        self.at = end + 1
        self.emit(Kind.STRING, joined([*parts, self.text[from_here:end]]), start)

    def bare(self, start: int) -> None:
        """A text without quotes that began at `start` and goes on at the current place."""
        from_here = start
        parts: list[str] = []
        self.skip(_BARE)
        while self.peek() == "\\":
            parts.append(self.text[from_here : self.at])
            self.at += 1
            parts.append(self.escape())
            from_here = self.at
            self.skip(_BARE)
        text = self.text[from_here : self.at]
        if self.peek() == "'":
            self.at += 1
            self.emit(Kind.STRING, joined([*parts, text]), start)
        elif parts:
            self.emit(Kind.STRING, joined([*parts, text]), start)
        elif text.lower() in BOOLS:
            self.emit(Kind.BOOL, BOOLS[text.lower()], start)
        elif text.startswith("$"):
            self.emit(Kind.VARIABLE, text[1:], start)
        else:
            self.emit(Kind.STRING, text, start)

    def escape(self) -> str:
        """What stands behind a backslash, which has been read."""
        char = self.peek()
        if char in _ESCAPES:
            self.at += 1
            return _ESCAPES[char]
        if char != "x":
            self.fail('unknown escape: only \\t \\n \\r \\" \\\\ and \\xHH are known', self.at - 1)
        digits = self.text[self.at + 1 : self.at + 3]
        try:
            byte = bytes.fromhex(digits)
        except ValueError:
            byte = b""
        if len(byte) != 1:
            self.fail("expected two hexadecimal digits after \\x", self.at - 1)
        self.at += 3
        return byte.decode("utf-8", "surrogateescape")

    def block(self) -> None:
        start = self.at + 1
        match = _BLOCK_END.search(self.text, start)
        if match is None:
            self.fail("a ( block has no end: its `)` stands alone on its line")
        self.at = match.end()
        self.emit(Kind.STRING, self.text[start : match.start() + 1], start)

    # --- numbers and what starts like one

    def number(self) -> None:
        start = self.at
        match = _NUMBER.match(self.text, start)
        if match is None:
            self.fail(f"expected a digit after `-`: {QUOTE_HINT}")
        digits, suffix, suffix_rest, dot, fraction = match.groups()
        self.at = match.end()
        char = self.peek()
        if dot:
            self.fraction(start, fraction)
        elif suffix and char and (char == "]" or char not in _NUMBER_ENDS):
            self.bare(start)
        elif suffix or not char or char in _NUMBER_ENDS:
            sign = -1 if self.text[start] == "-" else 1
            self.integer(start, sign * int(digits[:20]), (suffix or "") + (suffix_rest or ""))
        elif char == "-" and self.text[start] != "-":
            self.date(start)
        elif self.text[start] == "-":
            self.fail(f"unexpected `{char}` in a number: {QUOTE_HINT}")
        else:
            self.at += 1
            self.bare(start)

    def integer(self, start: int, number: int, suffix: str) -> None:
        unit = 1
        if suffix:
            letters = suffix.lower()
            if letters[1:] not in ("", "b", "i", "ib"):
                self.fail(f"unknown size suffix: {QUOTE_HINT}", start)
            base = 1000 if len(letters) == 1 else 1024
            unit = base ** _SUFFIX_POWERS[letters[0]]
        if not -(2**63) <= number * unit < 2**63:
            self.fail(f"the number is out of range: {QUOTE_HINT}", start)
        self.emit(Kind.INTEGER, number * unit, start)

    def fraction(self, start: int, fraction: str) -> None:
        if not fraction:
            self.fail(f"expected a digit after the dot: {QUOTE_HINT}")
        if self.peek() == ".":
            self.skip(_ADDRESS)
            self.emit(Kind.STRING, self.text[start : self.at], start)
            return
        number = float(self.text[start : self.at])
        if number in (float("inf"), float("-inf")):
            self.fail(f"the number is out of range: {QUOTE_HINT}", start)
        self.emit(Kind.FLOAT, number, start)

    def date(self, start: int) -> None:
        match = _DATE.match(self.text, start)
        if match is None:
            self.fail(
                "a number cannot contain `-`, and a date looks like 2006-01-02T15:04:05Z: "
                + QUOTE_HINT,
                start,
            )
        self.at = match.end()
        self.emit(Kind.DATE, match.group(), start)

    # --- small steps

    def peek(self) -> str:
        """The next character; empty at the end, and a NUL is an end."""
        char = self.text[self.at : self.at + 1]
        return "" if char == "\0" else char

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            self.fail("unexpected NUL byte")
        self.at = match.end()
        return match.group()

    def comment(self) -> bool:
        """Skip a comment up to its line end, if here is one."""
        if not self.text.startswith(("#", "//"), self.at):
            return False
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end
        return True

    def next_entry(self) -> str:
        """Skip spaces, line ends and comments."""
        while True:
            self.skip(_SPACES)
            if not self.comment():
                break
        if self.text.startswith("/", self.at):
            self.fail("unexpected `/`: a comment starts with # or //")
        if self.text.startswith("\0", self.at):
            self.fail("unexpected NUL byte")
        return self.peek()

    def after_value(self) -> str:
        """Skip blanks and a comment."""
        self.skip(_BLANKS)
        if self.comment():
            self.skip(_BLANKS)
        return self.peek()

    def nested(self, read: Callable[[], None]) -> None:
        self.depth += 1
        if self.depth > limits.MAX_CONFIG_DEPTH:
            self.fail(f"nested deeper than {limits.MAX_CONFIG_DEPTH} levels")
        read()
        self.depth -= 1

    def emit(self, kind: int, value: str | int | float | bool, offset: int) -> None:
        if isinstance(value, str) and not is_text(value):
            self.fail("the text is not UTF-8", offset)
        self.tokens.append(Token(kind, value, offset))

    def fail_after_value(self, char: str) -> NoReturn:
        got = f"`{char}`" if char else "the end of the file"
        if self.tokens[-1].kind in (Kind.INTEGER, Kind.FLOAT):
            self.fail(f"expected the end of the number but got {got}: {QUOTE_HINT}")
        self.fail(f"expected the end of the value (a line end, a comma or a comment), got {got}")

    def fail(self, text: str, offset: int | None = None) -> NoReturn:
        at = self.at if offset is None else offset
        raise ConfigError([Problem(text, self.source, at)])


def joined(parts: list[str]) -> str:
    """Join texts; bytes of `\\xHH` that together make a character become that character."""
    text = "".join(parts)
    if is_text(text):
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
