"""Lost ranges and sentences about damage: joined, in order, bounded."""

import random
import time

import pytest

from storage._seqset import SequenceSet
from storage.losses import (
    AND_MORE,
    SENTENCES_MAX,
    add_range,
    add_sentence,
    joined_ranges,
    touches,
    without_end,
)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_what_a_set_would_be(seed: int) -> None:
    rng = random.Random(seed)
    ranges: list[list[int]] = []
    wanted = SequenceSet()
    for _ in range(200):
        first = rng.randint(1, 500)
        last = first + rng.randint(0, 6)
        add_range(ranges, first, last)
        wanted.add_range(first, last)
    assert ranges == [list(found) for found in wanted.ranges()]


def test_messages_of_one_block_are_one_range() -> None:
    assert joined_ranges([[5, 5], [4, 4], [6, 9], [20, 20]]) == [[4, 9], [20, 20]]


def test_what_touches_and_what_a_cut_leaves() -> None:
    ranges = [[4, 9], [20, 20]]
    met = [touches(ranges, first, last) for first, last in ((1, 3), (9, 9), (10, 19), (15, 30))]
    assert met == [False, True, False, True]
    assert not touches([], 1, 9)
    assert [without_end(ranges, last) for last in (3, 6, 19, 20)] == [
        [],
        [[4, 6]],
        [[4, 9]],
        ranges,
    ]


def test_sentences_end() -> None:
    sentences: list[str] = []
    started = time.process_time()
    for number in range(100_000):
        add_sentence(sentences, f"record of {number % 70_000} does not hold")
    assert len(sentences) == SENTENCES_MAX + 1
    assert sentences[-1] == AND_MORE
    assert time.process_time() - started < 5
