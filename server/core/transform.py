"""Subject transforms: `orders.*` -> `shop.{{partition(3,1)}}.$1`, with all their functions.

Streams, republish and account mappings share them. Refusals carry the reference's texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MAX_INT32 = 2**31 - 1
FNV_OFFSET = 2166136261
FNV_PRIME = 16777619
CALL = re.compile(r"\{\{\s*([A-Za-z]+)\s*\((.*)\)\s*\}\}")
COMMA = re.compile(r",\s*")
INTEGER = re.compile(r"[+-]?[0-9]+")

# Functions that take a wildcard's number and an integer.
WITH_LENGTH = ("splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight")
NAMES = ("wildcard", "partition", *WITH_LENGTH, "right", "left", "split", "random")
HUMPS = {re.sub(r"[A-Z]", lambda m: m[0].lower(), name): name for name in NAMES}


class TransformError(ValueError):
    """A source or destination that no transform can be made of."""


def bad(what: str, token: str) -> TransformError:
    return TransformError(f"invalid mapping destination: {what} in {token}")


NOT_ENOUGH = "not enough arguments passed to the function"
TOO_MANY = "too many arguments passed to the function"
INVALID = "function argument is invalid or in the wrong format"
OUT_OF_RANGE = "wildcard index out of range"


@dataclass(frozen=True, slots=True)
class Piece:
    """A destination token: plain text, or a function over the source's tokens."""

    function: str  # "" for plain text
    text: str  # the token itself, or the delimiter of `split`
    tokens: tuple[int, ...] = ()  # wildcard numbers, later positions of source tokens
    number: int = 0


class SubjectTransform:
    """Maps subjects that match `source` to `destination`.

    `strict` is for imports: only wildcard references, and all of them used. `random_below` gives a
    number below its argument; only `random` asks for it.
    """

    def __init__(
        self,
        source: str,
        destination: str,
        *,
        strict: bool = False,
        random_below: Callable[[int], int] | None = None,
    ) -> None:
        self.source = source or ">"
        self.destination = destination
        self._random_below = random_below
        self._source_tokens = plain_tokens(self.source)
        tokens = plain_tokens(destination)
        if "*" in tokens or (self._source_tokens[-1] == ">") != (tokens[-1] == ">"):
            raise TransformError("invalid subject")
        self.is_open_ended = tokens[-1] == ">"
        stars = [at for at, token in enumerate(self._source_tokens) if token == "*"]
        wild = bool(stars) or self._source_tokens[-1] == ">"
        self.pieces = [resolve(parse_token(token), token, stars, wild, strict) for token in tokens]
        if strict and wild and sum(len(piece.tokens) for piece in self.pieces) < len(stars):
            raise bad("not using all of the token wildcard(s)", destination)

    def apply(self, subject: str) -> str | None:
        """The new subject; None: `subject` does not match the source or is no literal one."""
        if self.source == self.destination == ">":
            return subject
        tokens = subject.split(".")
        if not {"", "*", ">"}.isdisjoint(tokens):
            return None
        if self.source != ">" and not covers(self._source_tokens, tokens):
            return None
        return self.map_tokens(tokens)

    def map_tokens(self, tokens: Sequence[str]) -> str:
        mapped = [self._render(piece, tokens) for piece in self.pieces]
        if self.is_open_ended:
            mapped[-1:] = tokens[len(self._source_tokens) - 1 :]
        return ".".join(mapped)

    def _render(self, piece: Piece, tokens: Sequence[str]) -> str:
        match piece.function:
            case "":
                return piece.text
            case "random":
                if piece.number == 0 or self._random_below is None:
                    return "0"
                return str(self._random_below(abs(piece.number)))
            case "partition":
                picked = [tokens[at] for at in piece.tokens]
                key = "".join(picked) if picked else ".".join(tokens)
                return partition(key, piece.number)
            case _:
                at = piece.tokens[0]
                return cut(piece, tokens[at]) if at < len(tokens) else ""


def plain_tokens(subject: str) -> list[str]:
    tokens = subject.split(".")
    if "" in tokens or ">" in tokens[:-1]:
        raise TransformError("invalid subject")
    return tokens


def covers(pattern: Sequence[str], tokens: Sequence[str]) -> bool:
    for at, token in enumerate(pattern):
        if at == len(tokens):
            return False
        if token == ">":
            return True
        if token not in ("*", tokens[at]):
            return False
    return len(pattern) == len(tokens)


def resolve(piece: Piece, token: str, stars: list[int], wild: bool, strict: bool) -> Piece:
    """Turns wildcard numbers into positions of source tokens."""
    if not wild:
        if piece.function in ("", "random", "partition"):
            return Piece(piece.function, piece.text, (), piece.number)
        raise bad(OUT_OF_RANGE, token)
    if strict and piece.function not in ("", "wildcard"):
        only = "the only mapping function allowed for import transforms is {{Wildcard()}}"
        raise bad(only, token)
    positions = []
    for number in piece.tokens:
        if number > len(stars):
            raise bad(OUT_OF_RANGE, f"{token}: [{number}]")
        # The reference takes the first token for numbers below one.
        positions.append(stars[number - 1] if number > 0 else 0)
    return Piece(piece.function, piece.text, tuple(positions), piece.number)


def parse_token(token: str) -> Piece:
    if len(token) > 1 and token[0] == "$" and INTEGER.fullmatch(token[1:]):
        return Piece("wildcard", token, (int(token[1:]),))
    if len(token) <= 4 or not (token.startswith("{{") and token.endswith("}}")):
        return Piece("", token)
    found = CALL.search(token)
    function = spelled(found[1]) if found else ""
    if not found or not function:
        raise bad("unknown function", token)
    return parse_call(function, COMMA.split(found[2]), token)


def spelled(name: str) -> str:
    """The function a name means: each hump may start in either case, the rest may not."""
    function = HUMPS.get(name.lower(), "")
    heads = {0, *(at for at, c in enumerate(function) if c.isupper())}
    same = all(a == b or at in heads for at, (a, b) in enumerate(zip(name, function, strict=False)))
    return function if same else ""


def parse_call(function: str, arguments: list[str], token: str) -> Piece:
    match function:
        case "wildcard":
            if arguments == [""]:
                raise bad(NOT_ENOUGH, token)
            if len(arguments) > 1:
                raise bad(TOO_MANY, token)
            return Piece(function, token, (integer(arguments[0], token),))
        case "partition":
            count = integer(arguments[0], token, MAX_INT32)
            return Piece(function, token, tuple(integer(a, token) for a in arguments[1:]), count)
        case "random":
            if len(arguments) != 1:
                raise bad(NOT_ENOUGH, token)
            return Piece(function, token, (), integer(arguments[0], token, MAX_INT32))
        case _:
            return parse_pair(function, arguments, token)


def parse_pair(function: str, arguments: list[str], token: str) -> Piece:
    if len(arguments) < 2:
        raise bad(NOT_ENOUGH, token)
    if len(arguments) > 2:
        raise bad(TOO_MANY, token)
    index = integer(arguments[0], token)
    if function == "split":
        if " " in arguments[1] or "." in arguments[1]:
            raise bad(INVALID, token)
        return Piece(function, arguments[1], (index,))
    number = integer(arguments[1], token, MAX_INT32)
    if number < -MAX_INT32 - 1:
        raise bad(INVALID, token)
    return Piece(function, token, (index,), number)


def integer(text: str, token: str, most: int = 2**63 - 1) -> int:
    text = text.strip(" ")
    if not INTEGER.fullmatch(text) or int(text) > most:
        raise bad(INVALID, token)
    return int(text)


def partition(key: str, count: int) -> str:
    """FNV-1a of the key, modulo the number of partitions."""
    value, modulus = FNV_OFFSET, count & 0xFFFFFFFF
    for byte in key.encode("utf-8", "surrogateescape"):
        value = (value ^ byte) * FNV_PRIME & 0xFFFFFFFF
    return str(value % modulus) if modulus else "0"


def cut(piece: Piece, text: str) -> str:
    """What the functions over one token make of it."""
    if piece.function == "wildcard":
        return text
    if piece.function == "split":
        return ".".join(part for part in text.split(piece.text) if part) if piece.text else text
    # Sizes are of bytes, wherever that leaves a character.
    token = text.encode("utf-8", "surrogateescape")
    return cut_bytes(piece, token).decode("utf-8", "surrogateescape")


def cut_bytes(piece: Piece, token: bytes) -> bytes:
    size = piece.number
    if not 0 < size < len(token):
        return token
    match piece.function:
        case "left":
            return token[:size]
        case "right":
            return token[-size:]
        case "splitFromLeft":
            return token[:size] + b"." + token[size:]
        case "splitFromRight":
            return token[:-size] + b"." + token[-size:]
        case "sliceFromLeft":
            return b".".join(token[at : at + size] for at in range(0, len(token), size))
        case _:
            head = len(token) % size
            rest = [token[at : at + size] for at in range(head, len(token), size)]
            return b".".join(([token[:head]] if head else []) + rest)


INVALID_TRANSFORM = "invalid mapping destination: invalid transform"


def check_mapping(source: str, destination: str) -> None:
    """Refuses a bad destination of a stream's transform; an empty one means none."""
    if not destination:
        return
    ended = False
    for token in destination.split("."):
        if not token or ended:
            raise TransformError(INVALID_TRANSFORM + (f" in {token}" if token else ""))
        if len(token) > 4 and token.startswith("{{") and token.endswith("}}"):
            found = CALL.search(token)
            if not found or not spelled(found[1]):
                raise bad("unknown function", token)
        elif any(c in "\t\n\f\r " for c in token):
            raise TransformError(INVALID_TRANSFORM)
        ended = token == ">"
    SubjectTransform(source, destination)


def mapping_problem(source: str, destination: str) -> str:
    """What is wrong with one destination of an account's mapping; empty: nothing."""
    if not destination:
        return INVALID_TRANSFORM
    try:
        check_mapping(source, destination)
    except TransformError as error:
        return str(error)
    return ""


def tokenized(source: str) -> str:
    """The destination that leaves a subject as it is: `a.*.>` -> `a.$1.>`."""
    number = 0
    tokens = source.split(".")
    for at, token in enumerate(tokens):
        if token == "*":
            number += 1
            tokens[at] = f"${number}"
    return ".".join(tokens)
