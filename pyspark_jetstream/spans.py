"""Ranges of sequences, first and last."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]


def joined(spans: Iterable[Span]) -> list[Span]:
    """Ascending; those that overlap or are neighbours are one."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def without(spans: Iterable[Span], covered: Iterable[Span]) -> list[Span]:
    """What of `spans` is in none of `covered`."""
    left, holes = [], joined(covered)
    for start, last in joined(spans):
        first = start
        for low, high in holes:
            if high < first or low > last:
                continue
            if first < low:
                left.append((first, low - 1))
            first = high + 1
        if first <= last:
            left.append((first, last))
    return left
