"""The last closed connections, as many as `max_closed_clients`; older ones are forgotten.

Their subscriptions are kept as far as a bound goes: a part of those of a connection that had very
many, and no longer those of the connections that closed first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from server.ops import connection

if TYPE_CHECKING:
    from server.core._client import Client

SUBSCRIPTIONS_MAX: Final = 65_536
SUBSCRIPTIONS_OF_ONE_MAX: Final = 4_096


class ClosedConnections:
    def __init__(self, limit: int) -> None:
        self._ring: deque[connection.Connection] = deque(maxlen=limit)
        # Those whose subscriptions are kept, in the same order.
        self._with_subscriptions: deque[connection.Connection] = deque()
        self._subscriptions = 0

    def add(self, client: Client) -> None:
        """To be called once, when `client` has been closed."""
        is_full = bool(self._ring) and len(self._ring) == self._ring.maxlen
        gone = self._ring[0] if is_full else None
        closed = connection.snapshot(client, with_subscriptions=False)
        closed.subscriptions = client.subscriptions(0, SUBSCRIPTIONS_OF_ONE_MAX)
        self._ring.append(closed)
        if closed.subscriptions:
            self._with_subscriptions.append(closed)
            self._subscriptions += len(closed.subscriptions)
        oldest = self._with_subscriptions
        while oldest and (self._subscriptions > SUBSCRIPTIONS_MAX or oldest[0] is gone):
            self._subscriptions -= len(oldest[0].subscriptions)
            oldest.popleft().subscriptions = ()

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[connection.Connection]:
        return iter(self._ring)
