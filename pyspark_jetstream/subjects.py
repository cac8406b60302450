"""Which subjects are wanted: NATS wildcards, and what a query engine hands down."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pyspark_jetstream.errors import OptionError

Accepts = Callable[[bytes], bool]


def check_pattern(pattern: str) -> None:
    tokens = pattern.split(".")
    for at, token in enumerate(tokens):
        if not token or re.search(r"\s", token):
            raise OptionError(f"subject {pattern!r} has an empty token or a blank")
        if token == ">" and at + 1 < len(tokens):
            raise OptionError(f"subject {pattern!r}: > may only stand at the end")


def pattern_of(subject: str) -> str:
    """A regular expression for one subject with wildcards."""
    tokens = subject.split(".")
    words = {"*": r"[^.]+", ">": r".+"}
    return r"\.".join(words.get(token) or re.escape(token) for token in tokens)


def matcher(subjects: Sequence[str]) -> Accepts | None:
    """None: every subject is wanted."""
    if not subjects or ">" in subjects:
        return None
    expression = "|".join(f"(?:{pattern_of(subject)})" for subject in subjects)
    compiled = re.compile(expression.encode(), re.DOTALL)
    return lambda subject: compiled.fullmatch(subject) is not None


def both(one: Accepts | None, other: Accepts | None) -> Accepts | None:
    if one is None or other is None:
        return one or other
    return lambda subject: one(subject) and other(subject)
