"""The wheel of expiries against a dictionary of times."""

from __future__ import annotations

from random import Random

import pytest

from storage._probe import WheelProbe

SECOND = 1_000_000_000
NEVER = 2**63 - 1


@pytest.mark.parametrize("seed", range(8))
def test_wheel_gives_what_is_due_once(seed: int) -> None:
    random = Random(seed)
    wheel, ends, seq = WheelProbe(), dict[int, int](), 0
    now_ns = random.choice([0, 1_700_000_000 * SECOND])
    for _ in range(300):
        for _ in range(random.choice([0, 1, 30])):
            seq += random.choice([1, 1, 100])
            ends[seq] = now_ns + random.choice([1, SECOND, 90 * SECOND, 5000 * SECOND])
            wheel.add(seq, ends[seq])
        for gone in random.sample(sorted(ends), min(len(ends), random.choice([0, 0, 3]))):
            wheel.remove(gone)
            del ends[gone]
        assert wheel.next_due_ns <= min(ends.values(), default=NEVER)
        now_ns += random.choice([0, 1, SECOND // 2, 10 * SECOND, 1024 * SECOND, 3000 * SECOND])
        due = {one for one, at_ns in ends.items() if at_ns <= now_ns}
        limit = random.choice([1, 5, 1000])
        taken: list[int] = []
        while True:
            part = wheel.take_due(now_ns, limit)
            taken += part
            if len(part) < limit:
                break
        # Entries of messages that went before may still be there; none comes twice.
        assert due <= set(taken)
        assert len(set(taken)) == len(taken)
        assert not set(taken) & (ends.keys() - due)
        for one in due:
            del ends[one]
    wheel.keep_live(seq)
    assert wheel.entry_count == len(ends)


def test_stale_entries_are_swept_out() -> None:
    wheel = WheelProbe()
    for seq in range(1, 20_001):
        wheel.add(seq, seq * SECOND)
    for seq in range(1, 19_001):
        wheel.remove(seq)
    assert 1000 <= wheel.entry_count <= 3100


def test_a_time_many_turns_of_the_wheel_away() -> None:
    wheel = WheelProbe()
    wheel.add(1, 10_000 * SECOND + 5)
    for second in range(0, 10_001, 7):
        assert wheel.take_due(second * SECOND, 10) == []
        assert wheel.next_due_ns > second * SECOND
    assert wheel.take_due(10_000 * SECOND + 5, 10) == [1]
    assert wheel.next_due_ns == NEVER


def test_entries_above_a_truncation_are_forgotten() -> None:
    wheel = WheelProbe()
    for seq in range(1, 11):
        wheel.add(seq, SECOND)
    wheel.keep_live(4)
    assert sorted(wheel.take_due(2 * SECOND, 100)) == [1, 2, 3, 4]
