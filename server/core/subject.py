"""Rules of subjects for Python rooms: validity, matching, overlap. _subject.pxd says it in C.

Tokens are split by `.` and never empty. `*` alone is any one token, `>` alone and last is one or
more tokens; both are plain text inside a longer token. Everything is case-sensitive.
"""

from __future__ import annotations

_BLANKS = frozenset(" \t\n\r\f\0")


def is_valid_subject(subject: str) -> bool:
    """May be subscribed to: whole tokens, `>` only at the end, no blanks and no zero byte."""
    tokens = subject.split(".")
    return "" not in tokens and ">" not in tokens[:-1] and _BLANKS.isdisjoint(subject)


def is_valid_literal(subject: str) -> bool:
    """May be published to: valid, and names one subject only."""
    return is_valid_subject(subject) and not has_wildcards(subject)


def has_wildcards(subject: str) -> bool:
    tokens = subject.split(".")
    return "*" in tokens or tokens[-1] == ">"


def matches(literal: str, pattern: str) -> bool:
    """Does a message on `literal` reach a subscription to `pattern`? Both must be valid."""
    return is_subset(literal, pattern)


def is_subset(narrow: str, wide: str) -> bool:
    """Is every subject that `narrow` names also named by `wide`? Both must be valid."""
    inner, outer = narrow.split("."), wide.split(".")
    for at, token in enumerate(outer):
        if at == len(inner):
            return False
        if token == ">":
            return True
        if inner[at] == ">" or token not in ("*", inner[at]):
            return False
    return len(inner) == len(outer)


def overlaps(one: str, other: str) -> bool:
    """Is there a subject that both name? Both must be valid."""
    left, right = one.split("."), other.split(".")
    for a, b in zip(left, right, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(left) == len(right)
