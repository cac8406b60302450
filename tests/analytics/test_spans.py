"""Ranges of sequences against plain sets of them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from pyspark_jetstream.spans import Span, joined, without


def some(rng: random.Random) -> list[Span]:
    firsts = [rng.randint(1, 40) for _ in range(rng.randint(0, 6))]
    return [(first, first + rng.randint(0, 8)) for first in firsts]


def members(spans: list[Span]) -> set[int]:
    return {seq for first, last in spans for seq in range(first, last + 1)}


@pytest.mark.parametrize("seed", range(50))
def test_spans_are_sets(seed: int) -> None:
    rng = random.Random(seed)
    spans, covered = some(rng), some(rng)
    whole, left = joined(spans), without(spans, covered)
    assert members(whole) == members(spans)
    assert members(left) == members(spans) - members(covered)
    for found in (whole, left):
        assert all(one[1] + 1 < other[0] for one, other in pairwise(found))
