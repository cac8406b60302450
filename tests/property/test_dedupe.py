"""The duplicate window against a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.jetstream._dedupe import DedupeWindow

IDS = [b"a", b"b", b"x" * 40, b"x" * 41, b"x" * 42, b"y" * 300, b"y" * 299 + b"z", b"", b"c"]
SECOND_NS = 10**9


class Twin:
    """All ids that were remembered, in order."""

    def __init__(self, window_ns: int) -> None:
        self.window_ns = window_ns
        self.seen: list[tuple[bytes, int, int]] = []

    def seq_of(self, message_id: bytes, now_ns: int) -> int:
        for known, seq, ts_ns in reversed(self.seen):
            if known == message_id:
                return seq if now_ns - ts_ns < self.window_ns else 0
        return 0


@pytest.mark.feature("3.011")
@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.sampled_from(IDS), st.integers(0, 20), st.booleans()), max_size=400),
)
def test_the_window_is_what_a_dictionary_says(
    window_ns: int, steps: list[tuple[bytes, int, bool]]
) -> None:
    window, twin, now_ns = DedupeWindow(window_ns, seed=7), Twin(window_ns), 0
    for seq, (message_id, later_ns, expires) in enumerate(steps, 1):
        now_ns += later_ns
        found = window.seq_of(message_id, now_ns)
        assert found == twin.seq_of(message_id, now_ns)
        if not found:
            window.remember(message_id, seq, now_ns)
            twin.seen.append((message_id, seq, now_ns))
        if expires:
            assert not window.expire(now_ns)
    alive = sum(1 for _, _, ts_ns in twin.seen if now_ns - ts_ns < window_ns)
    window.expire(now_ns)
    assert len(window) == alive


def test_many_ids_and_the_bound() -> None:
    window = DedupeWindow(10**9, ids_max=1000)
    for number in range(3000):
        window.remember(b"id-%d" % number, number + 1, number)
    assert len(window) == 1000
    assert window.forgotten == 2000
    assert window.seq_of(b"id-1999", 3000) == 0
    assert [window.seq_of(b"id-%d" % n, 3000) for n in (2000, 2999)] == [2001, 3000]
    window.set_window(0)
    assert len(window) == 0
    window.remember(b"x", 1, 1)
    assert window.seq_of(b"x", 1) == 0


@pytest.mark.feature("3.011")
def test_ids_are_found_while_the_table_grows_and_others_end() -> None:
    window = DedupeWindow(6000, seed=3)
    for number in range(20_000):
        window.remember(b"id-%d" % number, number + 1, number)
        if number % 997 == 0:
            alive = range(max(number - 5999, 0), number + 1)
            found = [window.seq_of(b"id-%d" % each, number) for each in alive]
            assert found == [each + 1 for each in alive]
            assert window.seq_of(b"id-%d" % (number - 6000), number) == 0
    assert len(window) == 6000
    assert window.forgotten == 0


def test_what_is_too_old_goes_in_slices_and_counts_no_more_at_once() -> None:
    window = DedupeWindow(SECOND_NS)
    for number in range(10_000):
        window.remember(b"id-%d" % number, number + 1, 0)
    assert window.next_expiry_ns() == SECOND_NS
    window.remember(b"new", 10_001, SECOND_NS)
    assert len(window) > 9_900, "one id that comes does not carry all others away"
    assert window.seq_of(b"id-9999", SECOND_NS) == 0
    assert window.expire(SECOND_NS, 4_000)
    assert 5_900 < len(window) < 6_001
    assert window.expire(SECOND_NS, 4_000)
    assert not window.expire(SECOND_NS, 4_000)
    assert len(window) == 1
    assert window.seq_of(b"new", SECOND_NS) == 10_001
    assert not window.expire(2 * SECOND_NS)
    assert window.memory_bytes == 0
    assert window.next_expiry_ns() is None


def test_what_the_bound_takes_too_late_was_not_forgotten_early() -> None:
    window = DedupeWindow(SECOND_NS, ids_max=100)
    for number in range(100):
        window.remember(b"id-%d" % number, number + 1, 0)
    for number in range(100):
        window.remember(b"new-%d" % number, number + 101, SECOND_NS)
    assert window.forgotten == 0


def test_a_long_id_takes_no_more_room_than_a_short_one() -> None:
    short, long = DedupeWindow(SECOND_NS), DedupeWindow(SECOND_NS, seed=9)
    for number in range(2_000):
        short.remember(b"%06d" % number, number + 1, 0)
        long.remember(b"%06d" % number + b"x" * 60_000, number + 1, 0)
    assert long.memory_bytes == short.memory_bytes
    tail = b"x" * 59_999
    assert long.seq_of(b"000007" + tail + b"x", 0) == 8
    assert long.seq_of(b"000007" + tail + b"y", 0) == long.seq_of(b"000007" + tail, 0) == 0


def test_memory_follows_what_is_left() -> None:
    window = DedupeWindow(SECOND_NS)
    for number in range(100_000):
        window.remember(b"%d" % number, number + 1, number * 10_000)
    full = window.memory_bytes
    window.remember(b"last", 100_001, SECOND_NS)
    while window.expire(1_990_000_000):
        pass
    assert len(window) < 2_000
    assert window.memory_bytes < full / 4
