"""What the server announces about itself in the system account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from server.ops.timetext import rfc3339

if TYPE_CHECKING:
    from server.ops.view import ServerView


class ServerEvents:
    """Publishes on `$SYS.SERVER.<id>.<word>`; who listens is the system account's affair."""

    def __init__(self, view: ServerView) -> None:
        self._view = view
        self._sequence = 0

    def lame_duck(self) -> None:
        self._publish("LAMEDUCK")

    def shutdown(self) -> None:
        self._publish("SHUTDOWN")

    def _publish(self, word: str) -> None:
        if self._view.options.no_system_account:
            return
        subject = f"$SYS.SERVER.{self._view.server_id}.{word}"
        payload = msgspec.json.encode(self._server_info())
        self._view.broker.system_account.publish(subject, payload=payload)

    def _server_info(self) -> dict[str, Any]:
        """Which server speaks, and when; the keys that every system message carries."""
        view = self._view
        self._sequence += 1
        optional = {"tags": view.options.server_tags, "metadata": view.options.server_metadata}
        return {
            "name": view.server_name,
            "host": view.options.host,
            "id": view.server_id,
            "ver": view.version,
            **{key: value for key, value in optional.items() if value},
            "jetstream": False,
            "flags": 0,
            "seq": self._sequence,
            "time": rfc3339(view.wall_ns()),
        }
