"""When the loop stays awake for the next part of an exchange, and when it gives up."""

from __future__ import annotations

import random

from server.net._attention import Attention

AWAKE_NS = 100_000
PAUSE_MIN = 8
PAUSE_MAX = 4096
OTHERS_MAX = 8


class Exchange:
    """Turns that come `gap_ns` apart; how many of them the loop was awake for."""

    def __init__(self) -> None:
        self.attention = Attention()
        self.now_ns = 1_000_000_000
        self.awake_ns = 0

    def go_on(
        self, turns: int, gap_ns: int, cids: tuple[int, ...] = (1,), answered: bool = True
    ) -> int:
        awake = 0
        for turn in range(turns):
            self.attention.heard(cids[turn % len(cids)], answered, self.now_ns)
            if self.attention.lasts(self.now_ns):
                self.awake_ns += min(gap_ns, AWAKE_NS)
                awake += self.attention.lasts(self.now_ns + gap_ns)
            self.now_ns += gap_ns
        return awake


def test_an_exchange_is_waited_for_awake() -> None:
    exchange = Exchange()
    assert exchange.go_on(PAUSE_MIN, 20_000) == 0
    assert exchange.go_on(2_000, 20_000) >= 1_990


def test_so_is_one_of_two_connections() -> None:
    assert Exchange().go_on(2_000, 20_000, (7, 9)) >= 1_980


def test_not_one_of_more() -> None:
    assert Exchange().go_on(2_000, 20_000, (7, 8, 9)) == 0
    assert Exchange().go_on(2_000, 20_000, (0,)) == 0


def test_who_gets_no_answer_is_not_in_an_exchange() -> None:
    assert Exchange().go_on(2_000, 20_000, answered=False) == 0


def test_a_slow_pace_costs_a_try_now_and_then() -> None:
    exchange = Exchange()
    turns = 8 * PAUSE_MAX
    assert exchange.go_on(turns, 2 * AWAKE_NS) == 0
    assert exchange.awake_ns <= AWAKE_NS * 24
    assert exchange.go_on(PAUSE_MAX + PAUSE_MIN, 20_000) > 0


def test_bursts_that_end_soon_are_slept_for() -> None:
    exchange = Exchange()
    for _ in range(4_000):
        exchange.go_on(10, 5_000)
        exchange.now_ns += 10_000_000
        exchange.attention.lasts(exchange.now_ns)
    assert exchange.awake_ns < 40_000 * 5_000 / 50


def test_an_exchange_that_pauses_is_tried_again_soon() -> None:
    exchange = Exchange()
    exchange.go_on(1_000, 20_000)
    exchange.now_ns += 1_000_000_000
    assert exchange.go_on(1_000, 20_000) >= 980


def test_a_few_others_between_do_not_end_it() -> None:
    exchange = Exchange()
    exchange.go_on(1_000, 20_000)
    for other in range(100, 200):
        exchange.go_on(1, 5_000, (other,))
        assert exchange.go_on(4, 20_000) == 4


def test_the_work_for_others_does_not_use_up_the_time_to_wait() -> None:
    exchange = Exchange()
    exchange.go_on(1_000, 20_000)
    for _ in range(200):
        exchange.attention.worked(2 * AWAKE_NS)
        exchange.now_ns += 2 * AWAKE_NS
        assert exchange.attention.lasts(exchange.now_ns)
        assert exchange.go_on(4, 20_000) == 4


def test_many_others_end_it_for_a_while() -> None:
    exchange = Exchange()
    exchange.go_on(1_000, 20_000)
    for other in range(100, 101 + OTHERS_MAX):
        assert exchange.attention.lasts(exchange.now_ns)
        exchange.go_on(1, 1_000, (other,))
    assert not exchange.attention.lasts(exchange.now_ns)
    assert exchange.go_on(100, 20_000) >= 80


def test_in_a_crowd_nobody_is_waited_for() -> None:
    exchange = Exchange()
    crowd = random.Random(1)
    for _ in range(10_000):
        exchange.go_on(1, 10_000, (crowd.randrange(1, 20),))
    assert exchange.awake_ns < 10_000 * 10_000 // 100
