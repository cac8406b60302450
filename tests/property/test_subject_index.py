"""The subject index and its filters against plain sets of texts."""

from __future__ import annotations

from random import Random

import pytest

from storage._filter import SubjectFilter
from storage._probe import IndexProbe
from tests.property.oracles.store import matches

TOKENS = ["a", "b", "cc", "ddd", "a-b", "$", "long-token-of-a-device-0123456789", "x" * 40]
WANTED = [
    [">"], ["*"], ["a.*"], ["*.a"], ["a.>"], ["a.b.>"], ["*.*.b"], ["a.*.*.cc"], ["*.ddd.>"],
    ["a"], ["a.b"], ["a.b", "b.a", "cc"], ["a.*", "*.b"], ["a-b.>", "a"], ["none.*"],
    [f"{first}.{second}.*" for first in TOKENS for second in TOKENS] + ["*.*", "a.b.c.d.>"],
]  # fmt: skip


class Twin:
    """Texts in a set beside the index, and filters that were made at some time before."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.index = IndexProbe()
        self.texts: set[bytes] = set()
        self.kept: dict[int, SubjectFilter] = {}

    def text(self) -> bytes:
        length = self.random.choice([1, 2, 2, 3, 3, 4])
        return ".".join(self.random.choices(TOKENS, k=length)).encode()

    def add(self, text: bytes) -> None:
        if text in self.texts:
            assert self.index.text(self.index.find(text)) == text
            return
        assert self.index.find(text) == 0
        number = self.index.add(text)
        assert self.index.find(text) == number
        self.texts.add(text)

    def drop(self) -> None:
        if self.texts:
            text = self.random.choice(sorted(self.texts))
            self.index.drop(text)
            assert self.index.find(text) == 0
            self.texts.remove(text)

    def expected(self, filters: list[str]) -> set[bytes]:
        return {text for text in self.texts if matches(text.decode(), filters)}

    def compare(self, which: int) -> None:
        filters = WANTED[which]
        fresh = self.index.filter([one.encode() for one in filters])
        kept = self.kept.setdefault(which, fresh)
        expected = self.expected(filters)
        assert self.index.matching(kept) == expected, filters
        assert self.index.matching(self.index.filter([f.encode() for f in filters])) == expected
        for text in self.random.sample(sorted(self.texts), min(len(self.texts), 10)):
            assert self.index.matches_text(fresh, text) == (text in expected), (filters, text)


@pytest.mark.parametrize("seed", range(6))
def test_filters_mark_what_matches(seed: int) -> None:
    twin = Twin(Random(seed))
    for _ in range(60):
        for _ in range(twin.random.choice([1, 3, 40, 200])):
            if twin.random.random() < 0.4:
                twin.drop()
            else:
                twin.add(twin.text())
        if twin.random.random() < 0.03:
            twin.index.clear()
            twin.texts.clear()
        assert twin.index.subject_count == len(twin.texts)
        for which in twin.random.sample(range(len(WANTED)), 4):
            twin.compare(which)


@pytest.mark.parametrize("tails", [["x"], ["x", "y.z", ""], [f"t{n}" for n in range(600)]])
def test_a_crowd_under_one_token(tails: list[str]) -> None:
    """Thousands of leaves under one node: its table grows while filters watch."""
    twin = Twin(Random(1))
    wanted = {
        text: twin.index.filter([text.encode()])
        for text in ("k.>", "k.*", "k.*.x", "k.*.*", "*.7.>", "k.*.y.*", "k.7.*", "k.*.t9", "l.*")
    }
    for number in range(6000):
        tail = tails[number % len(tails)]
        twin.add(f"k.{number}{'.' if tail else ''}{tail}".encode())
        if number % 3 == 2:
            twin.drop()
        if number in (5, 40, 700, 5999):
            twin.add(f"l.{number}".encode())
            for text, one in wanted.items():
                assert twin.index.matching(one) == twin.expected([text]), (text, number)


def test_numbers_are_given_again_and_memory_stays() -> None:
    index = IndexProbe()
    for number in range(1000):
        index.add(f"a.{number}.{'b' * (number % 80)}".encode())
    held = index.memory_bytes
    numbers = set()
    for turn in range(20):
        for number in range(1000):
            index.drop(f"a.{number}.{'b' * (number % 80)}".encode())
            numbers.add(index.add(f"a.{number}.{'b' * ((number + turn) % 80)}".encode()))
            index.drop(f"a.{number}.{'b' * ((number + turn) % 80)}".encode())
            index.add(f"a.{number}.{'b' * (number % 80)}".encode())
    assert max(numbers) <= 1000
    assert index.memory_bytes < 2 * held
    assert index.subject_count == 1000


def test_long_subjects_that_come_and_go_take_no_more_memory() -> None:
    index = IndexProbe()
    sizes = []
    for number in range(3000):
        index.add(b"%06d." % number + b"x" * (600 + number % 7 * 100))
        if number >= 10:
            before = number - 10
            index.drop(b"%06d." % before + b"x" * (600 + before % 7 * 100))
        if number % 1000 == 999:
            sizes.append(index.memory_bytes)
    assert sizes[-1] == sizes[0]
