"""SequenceSet against Python's own set."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage._seqset import SequenceSet

TOP = 2**64 - 2
SMALL = st.integers(0, 200)
OPERATION = st.tuples(st.sampled_from(["add", "add_range", "remove", "remove_range"]), SMALL, SMALL)


def apply(operation: tuple[str, int, int], ours: SequenceSet, twin: set[int]) -> None:
    name, first, length = operation
    members = set(range(first, first + (length % 12) + 1 if name.endswith("range") else first + 1))
    if name == "add":
        assert ours.add(first) == (first not in twin)
        twin |= members
    elif name == "remove":
        assert ours.remove(first) == (first in twin)
        twin -= members
    elif name == "add_range":
        assert ours.add_range(first, max(members)) == len(members - twin)
        twin |= members
    else:
        assert ours.remove_range(first, max(members)) == len(members & twin)
        twin -= members


def as_ranges(members: set[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for seq in sorted(members):
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges


@given(st.lists(OPERATION, max_size=200))
def test_seqset_is_a_set(operations: list[tuple[str, int, int]]) -> None:
    ours, twin = SequenceSet(), set[int]()
    for operation in operations:
        apply(operation, ours, twin)
        assert len(ours) == len(twin)
    assert list(ours) == sorted(twin)
    assert list(ours.ranges()) == as_ranges(twin)
    assert ours.range_count == len(as_ranges(twin))
    assert SequenceSet.decode(ours.encode()) == ours
    for seq in range(0, 215, 7):
        assert (seq in ours) == (seq in twin)
        assert ours.count_between(seq, seq + 20) == len(twin & set(range(seq, seq + 21)))


@given(st.sets(st.integers(0, 3000)), st.sets(st.integers(0, 3000)))
@settings(max_examples=50)
def test_seqset_union(left: set[int], right: set[int]) -> None:
    union = SequenceSet((seq, seq) for seq in left) | SequenceSet((seq, seq) for seq in right)
    assert list(union) == sorted(left | right)


@pytest.mark.parametrize("seed", range(5))
def test_seqset_of_many_ranges_splits_and_merges_leaves(seed: int) -> None:
    random = Random(seed)
    ours, twin = SequenceSet(), set[int]()
    order = [seq * 2 for seq in range(3000)]
    random.shuffle(order)
    for seq in order:
        ours.add(seq)
        twin.add(seq)
    assert ours.range_count == 3000
    random.shuffle(order)
    for seq in order[:2900]:
        ours.remove(seq)
        twin.remove(seq)
    assert list(ours) == sorted(twin)
    ours.add_range(0, 6000)
    assert list(ours.ranges()) == [(0, 6000)]


def test_seqset_at_the_ends_of_the_sequence_space() -> None:
    ours = SequenceSet([(0, 0), (TOP, TOP)])
    assert 0 in ours
    assert TOP in ours
    assert TOP + 1 not in ours
    assert -1 not in ours
    assert SequenceSet.decode(ours.encode()) == ours
    assert ours.add_range(1, TOP - 1) == TOP - 1
    assert list(ours.ranges()) == [(0, TOP)]
    with pytest.raises(ValueError, match="no range"):
        ours.add_range(5, 4)
    with pytest.raises(ValueError, match="no range"):
        ours.add(TOP + 1)


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\x01", b"\x02\x00", b"\x01\x01\x05", b"\x01\x00\x00", b"\x01\x02\x05\x00\x01\x00"],
)
def test_seqset_refuses_bytes_it_did_not_write(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="encoded sequence set"):
        SequenceSet.decode(damaged)


@given(st.binary(max_size=60))
def test_seqset_decode_of_anything_is_a_set_or_an_error(data: bytes) -> None:
    try:
        decoded = SequenceSet.decode(b"\x01" + data)
    except ValueError:
        return
    assert list(SequenceSet.decode(decoded.encode()).ranges()) == list(decoded.ranges())


def test_seqset_encoding_is_compact() -> None:
    assert len(SequenceSet([(1, 10_000_000)]).encode()) == 7
    assert len(SequenceSet((seq, seq) for seq in range(0, 2000, 2)).encode()) == 3 + 2000
