"""The subject trie against its plain twin, over long random runs."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest

from server.core._sublist import Held, Kept, Sublist
from server.core._subs import live_structures
from tests.property.oracles import sublist as twin
from tests.unit.memory_client import QUIET, World

TOKENS = ["a", "b", "ab", "A", "ä", "*", ">", "a*", ">b", "**", "*>"]
QUEUES = ["", "", "", "q", "r", "q.*", "Q"]

matches = lru_cache(maxsize=None)(twin.matches)


class Run:
    """Does the same to both and compares; `width` is how many different tokens there are."""

    def __init__(self, seed: int, *, cache: bool, width: int, population: int) -> None:
        self.random = random.Random(seed)
        self.trie = Sublist(cache=cache, seed=seed)
        self.held: dict[int, Held] = {}
        self.subs: dict[int, tuple[str, str]] = {}
        self.kept: list[tuple[str, Kept]] = []
        self.names = TOKENS + [f"t{n}" for n in range(width)]
        self.population = population
        self.number = 0

    def subject(self, *, wild: bool = True) -> str:
        pick = self.random
        while True:
            count = pick.choice((1, 1, 2, 2, 2, 3, 3, 4, 5))
            tokens = [pick.choice(self.names) for _ in range(count)]
            if pick.random() < 0.2 and wild:
                tokens[-1] = ">"
            if pick.random() < 0.03:
                tokens[pick.randrange(count)] = ""
            if wild or pick.random() < 0.1 or not {"*", ">"} & set(tokens):
                return ".".join(tokens)

    def insert(self) -> None:
        subject, queue = self.subject(), self.random.choice(QUEUES)
        if not twin.valid(subject):
            with pytest.raises(ValueError, match="not a valid subject"):
                self.trie.add(subject.encode(), queue.encode())
            return
        self.number += 1
        sid = str(self.number).encode()
        self.held[self.number] = self.trie.add(subject.encode(), queue.encode(), sid)
        self.subs[self.number] = (subject, queue)

    def remove(self) -> None:
        number = self.random.choice(list(self.held)) if self.held else 0
        if number:
            assert self.held[number].remove()
            assert not self.held.pop(number).remove()
            del self.subs[number]

    def expected(self, subject: str) -> tuple[set[int], dict[str, set[int]]]:
        plain: set[int] = set()
        queues: dict[str, set[int]] = {}
        for number, (pattern, queue) in self.subs.items():
            if matches(subject, pattern):
                (queues.setdefault(queue, set()) if queue else plain).add(number)
        return plain, queues

    def compare(self, subject: str, got: tuple[list[bytes], dict[bytes, list[bytes]]]) -> None:
        plain, queues = got
        numbers = [int(sid) for sid in plain]
        groups = {name.decode(): [int(sid) for sid in sids] for name, sids in queues.items()}
        assert len(set(numbers)) == len(numbers)
        assert all(len(set(group)) == len(group) for group in groups.values())
        assert self.expected(subject) == (
            set(numbers),
            {name: set(group) for name, group in groups.items()},
        )

    def match(self) -> None:
        subject = self.subject(wild=False)
        self.compare(subject, self.trie.matching(subject.encode()))
        if self.random.random() < 0.2:
            plain, queues = self.expected(subject)
            queued = sum(map(len, queues.values()))
            assert self.trie.interest(subject.encode()) == (len(plain), queued)
            assert self.trie.interested(subject.encode()) == bool(plain or queues)
        if self.random.random() < 0.2:
            kept = self.trie.keep(subject.encode())
            self.kept = [*self.kept[-5:], (subject, kept)]

    def look_back(self) -> None:
        """What a connection kept and may still use is what it would be told anew."""
        for subject, kept in self.kept:
            if kept.valid():
                self.compare(subject, kept.members())

    def step(self) -> None:
        grows = len(self.held) < self.population
        chance = self.random.random()
        if chance < 0.35:
            self.match()
        elif chance < (0.8 if grows else 0.55):
            self.insert()
        else:
            self.remove()
        if chance > 0.97:
            self.look_back()
        assert len(self.trie) == len(self.held)

    def remove_all(self) -> None:
        while self.held:
            self.remove()
        self.look_back()
        sizes = self.trie.sizes()
        assert (sizes["literals"], sizes["nodes"]) == (0, 0)
        assert self.trie.total() == 0

    def go(self, steps: int) -> None:
        before = live_structures()
        for at in range(steps):
            self.step()
            if at % 5000 == 4999:
                self.remove_all()
        self.remove_all()
        after = live_structures()
        for kind in ("subs", "homes", "bunches"):
            assert after[kind] == before[kind], kind


@pytest.mark.feature("1-060", "1-063", "1-067", "1-068", "1-073")
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(("width", "population"), [(0, 12), (3, 60), (40, 200)])
def test_the_trie_and_its_twin_agree(cache: bool, width: int, population: int) -> None:
    steps = 25_000 if population < 100 else 6_000
    Run(7, cache=cache, width=width, population=population).go(steps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_trie_and_its_twin_agree_for_a_million_operations(seed: int) -> None:
    Run(seed, cache=seed != 3, width=seed, population=8 << seed).go(250_000)


def random_pattern(pick: random.Random) -> str:
    tokens = [pick.choice("xxy*") for _ in range(pick.randint(1, 3))]
    return ".".join([*tokens[:-1], pick.choice([">", tokens[-1]])])


@pytest.mark.feature("1-060")
def test_whom_a_subject_reaches_and_overlaps() -> None:
    """What monitoring asks a connection, against all subjects of four tokens at most."""
    pick = random.Random(3)
    named = lru_cache(maxsize=None)(lambda pattern: twin.named_by(pattern, "xyz", 4))
    for _ in range(1500):
        client = World().client(QUIET)
        patterns = [random_pattern(pick) for _ in range(pick.randint(0, 4))]
        for sid, pattern in enumerate(patterns):
            client.say(f"SUB {pattern} {sid}\r\n".encode())
        asked = random_pattern(pick)
        literal = not {"*", ">"} & set(asked.split("."))
        pairs = [(named(pattern), named(asked)) for pattern in patterns]
        reached = [(its >= ours) if literal else (its <= ours) for its, ours in pairs]
        overlaps = any(its & ours for its, ours in pairs)
        assert client.server_side.overlaps(asked.encode()) == overlaps, (asked, patterns)
        assert client.server_side.reached_count(asked.encode()) == sum(reached), (asked, patterns)


def test_listing_pages_through_all_and_filters() -> None:
    pick = random.Random(5)
    trie = Sublist()
    names = ["x", "y", "*"]
    subs = [
        (f"{pick.choice(names)}.{pick.choice(names)}", pick.choice(QUEUES), str(number))
        for number in range(300)
    ]
    held = [trie.add(*(text.encode() for text in sub)) for sub in subs]
    for test in ("", "x.y", "y.y", "z.z"):
        want = {sub for sub in subs if not test or twin.matches(test, sub[0])}
        pages: list[tuple[bytes, bytes, bytes]] = []
        for skip in range(0, 320, 37):
            pages += trie.listing(37, skip, test.encode())
        assert sorted(pages) == sorted(tuple(text.encode() for text in sub) for sub in want)
        assert trie.total(test.encode()) == len(want)
    assert len(held) == 300
