"""The duplicate window against a dictionary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.jetstream._dedupe import DedupeWindow

IDS = [b"a", b"b", b"x" * 40, b"x" * 41, b"y" * 300, b"", b"c"]


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
            window.expire(now_ns)
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
