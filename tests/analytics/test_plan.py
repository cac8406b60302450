"""Pieces are shared among tasks in order, and evenly."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_jetstream import plan
from pyspark_jetstream.options import (
    PARTITION_BYTES,
    PARTITION_BYTES_MIN,
    PARTITIONS_WANTED,
    PROCESSORS,
)
from pyspark_jetstream.plan import Piece

MIB = 1 << 20


def pieces_of(weights: list[int]) -> list[Piece]:
    made, first = [], 1
    for number, weight in enumerate(weights):
        made.append(
            Piece(
                location=f"{number}.blk",
                account="$G",
                stream="S",
                group=1,
                salt=0,
                key=None,
                number=number,
                first=first,
                last=first + 99,
                sealed=True,
                end=weight,
                whole=True,
                weight=weight,
                dead=b"",
            )
        )
        first += 100
    return made


def weights_of(runs: list[list[Piece]]) -> list[int]:
    return [sum(piece.weight for piece in run) for run in runs]


def test_blocks_of_one_size_make_even_tasks() -> None:
    runs = plan.partition(pieces_of([8 * MIB] * 11 * PARTITIONS_WANTED), None)
    assert weights_of(runs) == [88 * MIB] * PARTITIONS_WANTED


def test_more_than_that_is_for_all_processors_as_well() -> None:
    weights = [8 * MIB] * ((PARTITION_BYTES // (8 * MIB) + 1) * PARTITIONS_WANTED)
    runs = plan.partition(pieces_of(weights), None)
    assert len(runs) == PARTITIONS_WANTED + PROCESSORS


def test_little_is_one_task_and_much_is_many() -> None:
    assert len(plan.partition(pieces_of([PARTITION_BYTES_MIN // 4] * 3), None)) == 1
    many = weights_of(plan.partition(pieces_of([8 * MIB] * 1000 * PARTITIONS_WANTED), None))
    assert max(many) <= PARTITION_BYTES + 4 * MIB
    assert not plan.partition([], None)


@given(
    weights=st.lists(st.integers(1, 200 * MIB), max_size=40),
    wanted=st.none() | st.integers(1, 100),
)
@example(weights=[1], wanted=2)
def test_every_sequence_is_in_one_task(weights: list[int], wanted: int | None) -> None:
    runs = plan.partition(pieces_of(weights), wanted)
    assert all(runs)
    if weights and wanted is not None:
        assert len(runs) >= wanted
    reached = 0
    for piece in (piece for run in runs for piece in run):
        assert piece.first == reached + 1
        reached = piece.last
    assert reached == 100 * len(weights)


@given(weights=st.lists(st.integers(1, 9 * MIB), min_size=1, max_size=80), count=st.integers(1, 20))
def test_no_task_has_more_than_a_piece_above_its_share(weights: list[int], count: int) -> None:
    runs = plan.packed(pieces_of(weights), count)
    assert len(runs) == min(count, len(weights))
    assert max(weights_of(runs)) <= sum(weights) / count + 2 * max(weights)
