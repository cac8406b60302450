"""What a stream has lost to damage: ranges of sequences, and sentences about why.

Ranges are `[first, last]`, ascending and apart from each other, so that a block of which nothing
holds is one range and not one for each message. Sentences are bounded; ranges are always exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

SENTENCES_MAX = 1000
AND_MORE = "more damage was found than is listed here"


def add_range(ranges: list[list[int]], first: int, last: int) -> None:
    """Add `first` to `last`, joined with what it overlaps or touches."""
    low = bisect_left(ranges, [first])
    if low and ranges[low - 1][1] >= first - 1:
        low -= 1
    high = low
    while high < len(ranges) and ranges[high][0] <= last + 1:
        first, last = min(first, ranges[high][0]), max(last, ranges[high][1])
        high += 1
    ranges[low:high] = [[first, last]]


def touches(ranges: list[list[int]], first: int, last: int) -> bool:
    """Whether one of the ranges has anything of `first` to `last`."""
    after = bisect_left(ranges, [last + 1])
    return after > 0 and ranges[after - 1][1] >= first


def without_end(ranges: list[list[int]], last: int) -> list[list[int]]:
    """What of them is at or below `last`."""
    return [[first, min(end, last)] for first, end in ranges if first <= last]


def joined_ranges(ranges: Iterable[list[int]]) -> list[list[int]]:
    """The same in order, each sequence once."""
    found: list[list[int]] = []
    for first, last in ranges:
        add_range(found, first, last)
    return found


def add_sentence(sentences: list[str], what: str) -> None:
    """Each once, and not without end."""
    if len(sentences) > SENTENCES_MAX or what in sentences:
        return
    sentences.append(what if len(sentences) < SENTENCES_MAX else AND_MORE)
