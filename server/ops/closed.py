"""The last closed connections, as many as `max_closed_clients`; older ones are forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from server.ops import connection

if TYPE_CHECKING:
    from server.core._client import Client


class ClosedConnections:
    def __init__(self, limit: int) -> None:
        self._ring: deque[connection.Connection] = deque(maxlen=limit)

    def add(self, client: Client) -> None:
        """To be called once, when `client` has been closed."""
        self._ring.append(connection.snapshot(client, with_subscriptions=True))

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[connection.Connection]:
        return iter(self._ring)
