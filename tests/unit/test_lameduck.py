"""How lame duck mode spreads the closing of clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from server.core._broker import Broker
from server.core._client import Client
from server.ops.lameduck import SECOND_NS, LameDuck, Pace


class FakeLoop:
    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        self._due.append((self.now_s + delay, callback))
        return None

    def run(self) -> None:
        while self._due:
            at = min(range(len(self._due)), key=lambda index: self._due[index][0])
            self.now_s, callback = self._due.pop(at)
            callback()


class FixedRandom:
    """Always the same part of what was asked for."""

    def __init__(self, part: float) -> None:
        self._part = part

    def token_bytes(self, size: int) -> bytes:
        return bytes(size)

    def below(self, bound: int) -> int:
        return int(bound * self._part)


@pytest.mark.feature("7-010")
@pytest.mark.parametrize(
    ("span_s", "count", "interval_s"),
    [(110, 2, 1), (110, 110, 1), (110, 1100, 0.1), (0, 10, 0.1), (-5, 4, 0.25)],
)
def test_the_pause_is_a_share_of_the_span_and_at_most_a_second(
    span_s: int, count: int, interval_s: float
) -> None:
    pace = Pace(span_s * SECOND_NS, count)
    assert pace.interval_ns == interval_s * SECOND_NS
    assert pace.pause_s(FixedRandom(0.0)) == interval_s / 2
    assert pace.pause_s(FixedRandom(0.9)) == pytest.approx(interval_s * 0.9)


@pytest.mark.feature("7-010")
def test_clients_go_one_by_one_behind_the_grace_period() -> None:
    loop, broker = FakeLoop(), Broker()
    closed_at: list[float] = []
    clients = [
        Client(broker, lambda data: None, lambda: closed_at.append(loop.now_s)) for _ in range(4)
    ]
    for client in clients:
        client.start()
    said: list[str] = []
    ended: list[float] = []
    LameDuck(
        loop,
        FixedRandom(0.8),
        clients,
        duration_ns=12 * SECOND_NS,
        grace_ns=10 * SECOND_NS,
        announce=said.append,
        done=lambda: ended.append(loop.now_s),
    )
    loop.run()
    assert said == ["Closing existing clients"]
    assert closed_at == pytest.approx([10.0, 10.4, 10.8, 11.2])
    assert ended == [closed_at[-1]]
    assert {client.reason for client in clients} == {"Server Shutdown"}
