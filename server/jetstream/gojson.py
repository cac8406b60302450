"""Requests decoded as the reference decodes JSON, refusals in its words.

Keys match without regard to case, `null` leaves a value as it is, unknown keys are refused when
strict, a body may hold several values (a later one goes over the earlier), and the first mistake in
the order of the text is the one told. Types are msgspec structs whose fields carry a `Kind`:

    class Paged(Struct):
        offset: Annotated[int, INT] = 0
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NoReturn,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from server.jetstream._goscan import Scanner, scan, skip_blanks
from server.jetstream.goscan import END, JsonError, wrong
from server.jetstream.gotime import TimeError, normal_time

T = TypeVar("T", bound=msgspec.Struct)


class Fraction(NamedTuple):
    """A number with a point, an exponent or very many digits: no field takes one."""

    text: str


Report = Callable[[str], None]


class Kind:
    """What a field takes; `go` is the type's name in a refusal."""

    def __init__(self, go: str) -> None:
        self.go = go

    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        """The value to keep; `old` when it does not fit, which is reported."""
        raise NotImplementedError

    def refuse(self, value: Any, path: str, old: Any, report: Report) -> Any:
        report(f"json: cannot unmarshal {described(value)} into {path} of type {self.go}")
        return old


class Text(Kind):
    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if value is None:
            return old
        return value if isinstance(value, str) else self.refuse(value, path, old, report)


class Flag(Kind):
    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if value is None:
            return old
        return value if isinstance(value, bool) else self.refuse(value, path, old, report)


class Whole(Kind):
    def __init__(self, go: str, bits: int = 64, signed: bool = True) -> None:
        super().__init__(go)
        self.low = -(1 << (bits - 1)) if signed else 0
        self.high = (1 << (bits - 1 if signed else bits)) - 1

    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if value is None:
            return old
        if isinstance(value, int) and not isinstance(value, bool):
            if self.low <= value <= self.high:
                return value
            report(f"json: cannot unmarshal number {value} into {path} of type {self.go}")
            return old
        if isinstance(value, Fraction):
            report(f"json: cannot unmarshal number {value.text} into {path} of type {self.go}")
            return old
        return self.refuse(value, path, old, report)


class Choice(Kind):
    """One of some words. Such a type reads itself in the reference, `null` as well."""

    def __init__(
        self, *words: str, fold: bool = False, other: Mapping[str, str] | None = None
    ) -> None:
        super().__init__("")
        self.words = {word: word for word in words} | dict(other or {})
        self.fold = fold

    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if isinstance(value, str):
            found = self.words.get(value.lower() if self.fold else value)
            if found is not None:
                return found
        report(f"can not unmarshal {quoted(compact(value))}")
        return old


class Compression(Kind):
    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if value is not None and not isinstance(value, str):
            report(f"json: cannot unmarshal {described(value)} into Go value of type string")
        elif value in ("none", "s2"):
            return value
        else:
            report("unknown compression algorithm")
        return old


class Moment(Kind):
    """A time, kept as the text that the reference would write."""

    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if value is None:
            return old
        if not isinstance(value, str):
            return self.refuse(value, path, old, report)
        try:
            return normal_time(value)
        except TimeError as error:
            report(str(error))
            return old


class ListOf(Kind):
    def __init__(self, item: Kind, go: str, null: Sequence[object] | None = ()) -> None:
        super().__init__(go)
        self.item = item
        self.null = null

    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if value is None:
            return None if self.null is None else list(self.null)
        if not isinstance(value, list):
            return self.refuse(value, path, old, report)
        # An element that is no element at all is told without the words "Go struct field".
        bare = path.removeprefix("Go struct field ")
        taken = []
        for at, item in enumerate(value):
            fits = isinstance(item, dict) and isinstance(self.item, Nested)
            where = f"{path if fits else bare}.{at}"
            taken.append(self.item.take(item, where, self.empty(), report, strict))
        return taken

    def empty(self) -> Any:
        if isinstance(self.item, Whole):
            return 0
        return "" if isinstance(self.item, Text) else None


class TextMap(Kind):
    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            return self.refuse(value, path, old, report)
        taken = dict(old or {})
        for key, item in value.items():
            if item is None or isinstance(item, str):
                taken[key] = item or ""
            else:
                report(f"json: cannot unmarshal {described(item)} into {path}.{key} of type string")
        return taken


class Nested(Kind):
    """A struct inside; `pointer`: `null` takes it away."""

    def __init__(self, struct: type[msgspec.Struct], go: str, pointer: bool = True) -> None:
        super().__init__(f"server.{go}")
        self.struct = struct
        self.pointer = pointer

    def take(self, value: Any, path: str, old: Any, report: Report, strict: bool) -> Any:
        if value is None:
            return None if self.pointer else old
        if not isinstance(value, dict):
            return self.refuse(value, path, old, report)
        return fill(self.struct() if old is None else old, value, path, report, strict)


TEXT = Text("string")
FLAG = Flag("bool")
INT = Whole("int")
INT32 = Whole("int32", bits=32)
INT64 = Whole("int64")
UINT64 = Whole("uint64", signed=False)
DURATION = Whole("time.Duration")
TIME = Moment("time.Time")
TEXTS = ListOf(TEXT, "[]string")
TEXT_MAP = TextMap("map[string]string")


@cache
def kinds(struct: type[msgspec.Struct]) -> Mapping[str, Kind]:
    """The kind of each field by its key."""
    hints = get_type_hints(struct, include_extras=True)
    found = {}
    for field in msgspec.structs.fields(struct):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            found[field.encode_name] = next(a for a in get_args(hint) if isinstance(a, Kind))
    return found


@cache
def folded_names(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """The key of each field by its name without upper and lower case; of equal ones the first."""
    names: dict[str, str] = {}
    for name in kinds(struct):
        names.setdefault(name.casefold(), name)
    return names


def fill(into: T, value: dict[str, Any], path: str, report: Report, strict: bool) -> T:
    table, names = kinds(type(into)), folded_names(type(into))
    for key, item in value.items():
        name = key if key in table else names.get(key.casefold())
        if name is None:
            if strict:
                report(f"json: unknown field {quoted(key)}")
            continue
        old = getattr(into, name)
        setattr(into, name, table[name].take(item, f"{path}.{name}", old, report, strict))
    return into


def refuse(text: str) -> NoReturn:
    """The first mistake is the one that is told: nobody looks further."""
    raise JsonError(text)


def decode(struct: type[T], body: bytes, go: str, strict: bool = True) -> T:
    """The request in `body`; JsonError with the reference's text when it is not one."""
    result = struct()
    for value in values(body):
        if isinstance(value, dict):
            fill(result, value, f"Go struct field {go}", refuse, strict)
        elif value is not None:
            refuse(f"json: cannot unmarshal {described(value)} into Go value of type server.{go}")
    return result


def decode_one(struct: type[T], body: bytes, go: str) -> T:
    """As `decode`, where unknown keys are never refused: exactly one value, no offsets told."""
    try:
        start = skip_blanks(body, 0)
        end = skip_blanks(body, Scanner(body).value(start))
        if end < len(body):
            raise wrong(body, end, "after top-level value")
    except JsonError as error:
        text = OFFSET.sub("", str(error))
        raise JsonError(END_OF_INPUT if text == END else text) from error
    return decode(struct, body, go, strict=False)


OFFSET = re.compile(r" at offset \d+$")
END_OF_INPUT = "unexpected end of JSON input"

RAW = msgspec.json.Decoder(float_hook=Fraction)


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def values(body: bytes) -> Iterator[Any]:
    """Every JSON value of a body, one after the other; usually one."""
    try:
        yield RAW.decode(body)
    except UNREADABLE:
        # Not one plain value: find out what is wrong the way the reference looks at it.
        for start, end in scan(body):
            yield loaded(body[start:end])


def loaded(piece: bytes) -> Any:
    """The value of what is JSON, however deep, however long its numbers, whatever is no UTF-8."""
    try:
        return RAW.decode(piece)
    except UNREADABLE:
        text = whole_text(piece)
    try:
        return json.loads(text, parse_float=Fraction, parse_int=number)
    except RecursionError:
        return json.loads(shallow(text), parse_float=Fraction, parse_int=number)


def number(digits: str) -> int | Fraction:
    return int(digits) if len(digits) <= DIGITS_MAX else Fraction(digits)


def shallow(text: str) -> str:
    """Without what is deeper than any field: objects and lists are empty there."""
    kept, depth, start = [], 0, 0
    for found in BRACKETS.finditer(text):
        if found[0] in ("[", "{"):
            depth += 1
            if depth == DEPTH_KEPT:
                kept.append(text[start : found.end()])
        elif found[0] in ("]", "}"):
            if depth == DEPTH_KEPT:
                start = found.start()
            depth -= 1
    return "".join(kept) + text[start:]


DIGITS_MAX = 40
DEPTH_KEPT = 50
BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')

SURROGATES = re.compile("[\ud800-\udfff]")
# A pair, one that is alone, any other escape: each is passed over as a whole.
ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)


def whole_text(piece: bytes) -> str:
    """Text for a decoder that is strict about UTF-8: what is broken becomes U+FFFD."""
    text = piece.decode("utf-8", "replace")
    return ESCAPE.sub(lambda found: r"\ufffd" if found[1] else found[0], text)


def described(value: Any) -> str:
    """The word the reference has for a JSON value."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case Fraction() | int():
            return "number"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "null"


def compact(value: Any) -> str:
    if isinstance(value, Fraction):
        return value.text
    return msgspec.json.encode(value).decode()


GO_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(text: str) -> str:
    """A text as Go's %q shows it."""
    shown = "".join(
        GO_ESCAPES.get(c) or (c if c.isprintable() else f"\\x{ord(c):02x}") for c in text
    )
    return f'"{shown}"'


def is_object_or_array(body: bytes) -> bool:
    """Is there an optional body? Only its first byte that is not blank says so."""
    return body.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


def is_empty(body: bytes) -> bool:
    """No body at all, or an object without keys."""
    if not body or body == b"{}":
        return True
    try:
        found = list(values(body))
    except JsonError:
        return False
    return len(found) == 1 and found[0] == {}


def encode(value: Any) -> bytes:
    """JSON as the reference writes it: what HTML could take for markup is escaped."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = msgspec.json.encode(
            printable(msgspec.to_builtins(value, enc_hook=msgspec.json.decode))
        )
    text = text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    if not text.isascii():
        text = text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return text


def printable(value: Any) -> Any:
    """With U+FFFD for each byte that is no UTF-8: subjects and ids may be any bytes."""
    if isinstance(value, str):
        return SURROGATES.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, dict):
        return {printable(key): printable(each) for key, each in value.items()}
    return [printable(each) for each in value] if isinstance(value, list) else value
