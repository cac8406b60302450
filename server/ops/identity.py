"""Who speaks, in every message of the system account; ids of events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from config import featureflags
from server.ops.timetext import rfc3339

if TYPE_CHECKING:
    from server.ops.view import ServerView

JETSTREAM_FLAG: Final = 1
BINARY_SNAPSHOT_FLAG: Final = 2
ID_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_LENGTH: Final = 22


class Identity:
    """The server's own description, with a number and a time for each message."""

    def __init__(self, view: ServerView) -> None:
        self._view = view
        self._sequence = 0

    def server(self) -> dict[str, Any]:
        view, options = self._view, self._view.options
        self._sequence += 1
        with_jetstream = view.jetstream is not None
        optional: Mapping[str, Any] = {
            "domain": options.jetstream.domain if with_jetstream else "",
        }
        tail: Mapping[str, Any] = {
            "tags": options.server_tags,
            "metadata": options.server_metadata,
            "feature_flags": featureflags.merged(options.feature_flags),
        }
        return {
            "name": view.server_name,
            "host": options.host,
            "id": view.server_id,
            **{key: value for key, value in optional.items() if value},
            "ver": view.version,
            **{key: value for key, value in tail.items() if value},
            "jetstream": with_jetstream,
            "flags": JETSTREAM_FLAG | BINARY_SNAPSHOT_FLAG if with_jetstream else 0,
            "seq": self._sequence,
            "time": rfc3339(view.wall_ns()),
        }

    def event(self, kind: str) -> dict[str, Any]:
        """The beginning of an event: type, id, time and who tells it."""
        raw = self._view.random.token_bytes(ID_LENGTH)
        return {
            "type": f"io.nats.server.advisory.v1.{kind}",
            "id": "".join(ID_DIGITS[byte % len(ID_DIGITS)] for byte in raw),
            "timestamp": rfc3339(self._view.wall_ns()),
            "server": self.server(),
        }
