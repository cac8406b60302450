"""From a tree to values: decoders, options, blocks, and a report that collects what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from config import limits
from config.duration import DurationError, parse_duration
from config.errors import Problem
from config.parser import Node, Tree

Draft = dict[str, Any]


class InvalidError(Exception):
    """One value is wrong. Without a text of its own it says what was expected and what came."""

    def __init__(self, text: str = "", node: Node | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.node = node


# What is wrong with a subject mapping's source and destination; empty: nothing. The transforms
# themselves belong to the server, which hands this in.
JudgeMapping = Callable[[str, str], str]


def accept_mapping(_source: str, _destination: str) -> str:
    return ""


class Report:
    """Errors and warnings, in the order in which they were met."""

    __slots__ = ("judge_mapping", "problems", "warnings")

    def __init__(self, judge_mapping: JudgeMapping = accept_mapping) -> None:
        self.judge_mapping = judge_mapping
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def error(self, node: Node, text: str) -> None:
        if len(self.problems) < limits.MAX_CONFIG_ERRORS:
            self.problems.append(node.problem(text))

    def warn(self, node: Node, text: str) -> None:
        self.warnings.append(node.problem(text))

    def unknown(self, node: Node, name: str) -> None:
        """A key that nobody knows is an error unless it only serves as a variable."""
        if not node.used:
            self.error(node, f'unknown field "{name}"')


class Decoder(Struct, frozen=True):
    """`read` gives the value, None to keep the default, or raises InvalidError."""

    expects: str
    read: Callable[[Node, Report], Any]


class Option(Struct, frozen=True):
    """One key of a block. An empty `field` means that the decoder gives several fields at once."""

    names: tuple[str, ...]
    field: str
    decoder: Decoder
    secret: bool = False


Block = Mapping[str, Option]


def option(*names: str, to: str, by: Decoder, secret: bool = False) -> Option:
    return Option(names, to, by, secret)


def block(*options: Option) -> Block:
    return {name: entry for entry in options for name in entry.names}


def decode_block(tree: Tree, known: Block, report: Report) -> Draft:
    """The fields that a map sets. Every problem is reported, and its field left out."""
    draft: Draft = {}
    for name, node in tree.items():
        entry = known.get(name) or known.get(name.lower())
        if entry is None:
            report.unknown(node, name)
            continue
        try:
            value = entry.decoder.read(node, report)
        except InvalidError as wrong:
            text = wrong.text or mismatch(name, entry, node)
            report.error(wrong.node or node, text)
            continue
        if value is None:
            continue
        if entry.field:
            draft[entry.field] = value
        else:
            draft.update(value)
    return draft


def mismatch(name: str, entry: Option, node: Node) -> str:
    got = node.type_name
    if isinstance(node.value, (dict, list)):
        pass
    elif not entry.secret:
        got += f" {shown(node)}"
    hint = ""
    if entry.decoder.expects == TEXT.expects and not isinstance(node.value, (dict, list)):
        hint = " (put the value in quotes)"
    return f'expected {entry.decoder.expects} for "{name}", got {got}{hint}'


def shown(node: Node) -> str:
    """A scalar for an error text."""
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    text = str(node.value)
    text = text if len(text) <= 64 else text[:61] + "..."
    return f'"{text}"' if isinstance(node.value, str) else text


# --- decoders of single values


def _text(node: Node, _: Report) -> str:
    if type(node.value) is not str:
        raise InvalidError
    return node.value


def _boolean(node: Node, _: Report) -> bool:
    if not isinstance(node.value, bool):
        raise InvalidError
    return node.value


def _texts(node: Node, _: Report) -> tuple[str, ...]:
    if type(node.value) is str:
        return (node.value,)
    if not isinstance(node.value, list):
        raise InvalidError
    for entry in node.value:
        if type(entry.value) is not str:
            raise InvalidError(f"expected a text in the array, got {entry.type_name}", entry)
    return tuple(str(entry.value) for entry in node.value)


def _text_map(node: Node, _: Report) -> dict[str, str]:
    if not isinstance(node.value, dict):
        raise InvalidError
    for name, entry in node.value.items():
        if type(entry.value) is not str:
            raise InvalidError(f'expected a text for "{name}", got {entry.type_name}', entry)
    return {name: str(entry.value) for name, entry in node.value.items()}


def _boolean_map(node: Node, _: Report) -> dict[str, bool]:
    if not isinstance(node.value, dict):
        raise InvalidError
    for name, entry in node.value.items():
        if not isinstance(entry.value, bool):
            raise InvalidError(f'expected a boolean for "{name}", got {entry.type_name}', entry)
    return {name: bool(entry.value) for name, entry in node.value.items()}


TEXT: Final = Decoder("a text", _text)
BOOLEAN: Final = Decoder("a boolean (true or false)", _boolean)
TEXTS: Final = Decoder("a text or an array of texts", _texts)
TEXT_MAP: Final = Decoder("a map of texts", _text_map)
BOOLEAN_MAP: Final = Decoder("a map of booleans", _boolean_map)


def integer(
    minimum: int | None = None,
    maximum: int | None = None,
    *,
    zero_is_default: bool = False,
    floor: int | None = None,
    expects: str = "an integer",
) -> Decoder:
    """Outside of the bounds is an error; below `floor` means the floor."""

    def read(node: Node, _: Report) -> int | None:
        number = node.value
        if not isinstance(number, int) or isinstance(number, bool):
            raise InvalidError
        if number == 0 and zero_is_default:
            return None
        if floor is not None and number < floor:
            return floor
        if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
            raise InvalidError
        return number

    if minimum is not None and maximum is not None:
        expects += f" from {minimum} to {maximum}"
    elif minimum is not None:
        expects += f" from {minimum} up"
    return Decoder(expects, read)


def storage_size(minimum: int | None = None) -> Decoder:
    """A size as a number, or as a text that ends in K, M, G or T (powers of 1024)."""

    def read(node: Node, _: Report) -> int:
        size = node.value
        if isinstance(size, str):
            size = _suffixed_size(size)
        if not isinstance(size, int) or isinstance(size, bool):
            raise InvalidError
        if minimum is not None and size < minimum:
            raise InvalidError
        return size

    return Decoder('a size (such as 512MB or "1G")', read)


def _suffixed_size(text: str) -> int:
    if not text:
        return 0
    shift = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1])
    digits = text[:-1]
    if shift is None or not digits.removeprefix("-").isdecimal():
        raise InvalidError
    return int(digits) << shift


def duration(*, zero_is_default: bool = False, minimum_ns: int | None = None) -> Decoder:
    """Nanoseconds of a Go duration."""

    def read(node: Node, _: Report) -> int | None:
        if type(node.value) is not str:
            raise InvalidError
        nanoseconds = go_duration(node.value)
        if minimum_ns is not None and nanoseconds < minimum_ns:
            raise InvalidError
        return None if nanoseconds == 0 and zero_is_default else nanoseconds

    return Decoder('a duration such as "2m"', read)


def go_duration(text: str) -> int:
    try:
        return parse_duration(text)
    except DurationError as error:
        raise InvalidError(str(error)) from None


def _seconds(node: Node, _: Report) -> int | None:
    value = node.value
    if isinstance(value, str):
        nanoseconds = go_duration(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        nanoseconds = int(value * limits.SECOND_NS)
    else:
        raise InvalidError
    if not 0 <= nanoseconds < 2**63:
        raise InvalidError
    return nanoseconds or None


SECONDS: Final = Decoder('a number of seconds or a duration such as "2s"', _seconds)


def one_of(*words: str) -> Decoder:
    def read(node: Node, _: Report) -> str:
        if type(node.value) is not str or node.value not in words:
            raise InvalidError
        return node.value

    return Decoder(", ".join(f'"{word}"' for word in words[:-1]) + f' or "{words[-1]}"', read)


# --- addresses

PORT: Final = integer(-1, 65535)


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[v6]:port` or `:port`."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host or "]" in host:
        colon = ""
    if not colon:
        raise InvalidError(f'could not parse address string "{text}"')
    digits = port[1:] if port[:1] in ("-", "+") else port
    if not (digits.isascii() and digits.isdecimal()):
        raise InvalidError(f'could not parse port "{port}"')
    number = int(port)
    if not -1 <= number <= 65535:
        raise InvalidError(f"a port is from -1 (a free one) to 65535, got {number}")
    return host, number


def split_advertised(text: str) -> tuple[str, int]:
    """Host and port that clients are told. Port 0, when there is none, is the listener's own."""
    has_port = ":" in text and not text.endswith("]")
    host, port = split_address(text if has_port else f"{text}:0")
    return host.strip(), max(port, 0)


def _advertised(node: Node, report: Report) -> str:
    text: str = TEXT.read(node, report)
    if text:
        split_advertised(text)
    return text


ADVERTISED: Final = Decoder(TEXT.expects, _advertised)


def address(host_field: str, port_field: str) -> Decoder:
    def read(node: Node, report: Report) -> Draft:
        if isinstance(node.value, str):
            host, port = split_address(node.value)
            return {host_field: host, port_field: port}
        return {host_field: "", port_field: PORT.read(node, report)}

    return Decoder("a port or host:port", read)
