"""The query arguments of the monitoring pages, refused in the reference's words.

Numbers and booleans are read as Go's strconv reads them; an absent or empty argument is zero.
"""

from __future__ import annotations

from collections.abc import Mapping

TRUE_WORDS = {"1", "t", "T", "true", "TRUE", "True"}
FALSE_WORDS = {"0", "f", "F", "false", "FALSE", "False"}
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1
# Of a number without zeros ahead: what has more is out of range by its first ones. Python itself
# refuses to read more than 4,300.
DIGITS_MAX = 30


class BadArgument(ValueError):
    """The text goes to the caller with status 400."""


def boolean(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "")
    if text and text not in TRUE_WORDS | FALSE_WORDS:
        raise _bad("boolean", name, "ParseBool", text, "invalid syntax")
    return text in TRUE_WORDS


def integer(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    digits = text[1:] if text[0] in "+-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise _bad("int", name, "Atoi", text, "invalid syntax")
    significant = digits.lstrip("0") or "0"
    value = int(significant[:DIGITS_MAX]) * (-1 if text[0] == "-" else 1)
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise _bad("int", name, "Atoi", text, "value out of range")
    return value


def unsigned(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise _bad("uint64", name, "ParseUint", text, "invalid syntax")
    value = int(text.lstrip("0")[:DIGITS_MAX] or "0")
    if value > UINT64_MAX:
        raise _bad("uint64", name, "ParseUint", text, "value out of range")
    return value


def _bad(kind: str, name: str, function: str, text: str, why: str) -> BadArgument:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return BadArgument(
        f"Error decoding {kind} for '{name}': strconv.{function}: parsing {quoted}: {why}"
    )
