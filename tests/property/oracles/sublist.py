"""The subject trie as a list that is searched from end to end."""

from __future__ import annotations

from collections import defaultdict
from itertools import product


def valid(subject: str) -> bool:
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def matches(literal: str, pattern: str) -> bool:
    """By the definition: `>` stands for one or more tokens, `*` for one."""
    have, want = literal.split("."), pattern.split(".")
    if not all(have):
        return False
    if want[-1] == ">" and len(have) >= len(want):
        want[-1:] = have[len(want) - 1 :]
    return len(have) == len(want) and all(w in ("*", h) for h, w in zip(have, want, strict=True))


def named_by(pattern: str, alphabet: str, tokens_max: int) -> set[str]:
    """Every literal subject over an alphabet, up to a length, that the pattern names."""
    literals = (
        ".".join(tokens)
        for length in range(1, tokens_max + 1)
        for tokens in product(alphabet, repeat=length)
    )
    return {literal for literal in literals if matches(literal, pattern)}


class Sublist:
    def __init__(self) -> None:
        self.subs: dict[int, tuple[str, str]] = {}

    def insert(self, number: int, subject: str, queue: str = "") -> None:
        assert valid(subject)
        self.subs[number] = (subject, queue)

    def remove(self, number: int) -> None:
        del self.subs[number]

    def match(self, literal: str) -> tuple[set[int], dict[str, set[int]]]:
        plain: set[int] = set()
        queues: dict[str, set[int]] = defaultdict(set)
        for number, (subject, queue) in self.subs.items():
            if matches(literal, subject):
                (queues[queue] if queue else plain).add(number)
        return plain, dict(queues)
