"""When input may gather for a moment, and what ends that."""

from __future__ import annotations

from server.net._patience import Patience

CALM_NS = 10_000_000
SPAN_NS = 10_000_000
NAP_NS = 500_000


class Fleet:
    """Turns that come `gap_ns` apart; before how many of them the loop waited."""

    def __init__(self) -> None:
        self.patience = Patience()
        self.now_ns = 1_000_000_000

    def go_on(self, turns: int, gap_ns: int, *, told: bool = False, kept_up: bool = True) -> int:
        waits = 0
        for _ in range(turns):
            self.now_ns += gap_ns
            if self.patience.waits(self.now_ns):
                waits += 1
                self.now_ns += NAP_NS
            self.patience.turned(self.now_ns, told, kept_up)
        return waits


def test_many_turns_that_tell_nobody_anything_are_waited_for() -> None:
    fleet = Fleet()
    assert fleet.go_on(8, 100_000) == 0
    assert fleet.go_on(1_000, 100_000) >= 990


def test_work_in_each_turn_does_not_end_it() -> None:
    fleet = Fleet()
    fleet.go_on(100, 100_000)
    assert fleet.go_on(1_000, 600_000) >= 990


def test_nobody_waits_while_somebody_is_told_something() -> None:
    assert Fleet().go_on(1_000, 100_000, told=True) == 0


def test_one_message_to_anybody_ends_it_for_a_while() -> None:
    fleet = Fleet()
    fleet.go_on(100, 100_000)
    fleet.go_on(1, 100_000, told=True)
    assert fleet.go_on(CALM_NS // 100_000, 100_000) == 0
    assert fleet.go_on(100, 100_000) >= 90


def test_a_few_turns_are_taken_at_once() -> None:
    assert Fleet().go_on(1_000, SPAN_NS // 7) == 0


def test_after_a_pause_the_first_is_taken_at_once() -> None:
    fleet = Fleet()
    fleet.go_on(100, 100_000)
    fleet.now_ns += 2 * SPAN_NS
    assert not fleet.patience.waits(fleet.now_ns)


def test_who_does_not_keep_up_does_not_wait() -> None:
    assert Fleet().go_on(1_000, 100_000, kept_up=False) == 0
