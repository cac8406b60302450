"""Header blocks of published messages, rewritten."""

from __future__ import annotations

from time import perf_counter

from hypothesis import given
from hypothesis import strategies as st

from server.jetstream import headers

NAMES = ["A: 1", "Nats-X: 1", "Nats-X:", "X-Nats-X: 1", "nats-x: 1", "B: Nats-X: 2"]
LINES = st.sampled_from(NAMES)


@given(st.lists(LINES, max_size=12))
def test_all_fields_of_a_name_go_and_nothing_else(lines: list[str]) -> None:
    block = "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()
    kept = [line for line in lines if not line.startswith("Nats-X:")]
    left = "\r\n".join(["NATS/1.0", *kept, "", ""]).encode() if kept else b""
    expected = left if len(kept) < len(lines) else block
    assert headers.removed(block, b"Nats-X") == expected


def test_a_line_without_an_end_stays() -> None:
    assert headers.removed(b"NATS/1.0\r\nNats-X: 1", b"Nats-X") == b"NATS/1.0\r\nNats-X: 1"


def test_a_megabyte_of_fields_goes_in_one_pass() -> None:
    block = b"NATS/1.0\r\n" + b"Nats-X:\r\n" * 100_000 + b"A: b\r\n\r\n"
    started = perf_counter()
    assert headers.removed(block, b"Nats-X") == b"NATS/1.0\r\nA: b\r\n\r\n"
    # A copy of the block for each of them takes some seconds.
    assert perf_counter() - started < 1.0
