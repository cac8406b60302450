"""The event of a traced message, published where its headers or its account ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from server.ops.encoding import encoded
from server.ops.timetext import rfc3339

if TYPE_CHECKING:
    from server.core.msgtrace import MessageTrace
    from server.ops.identity import Identity


class TraceEvents:
    """Satisfies what the data path asks of `Hooks.on_traced`."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def publish(self, trace: MessageTrace) -> None:
        block, payload = encoded(msgspec.json.encode(self._event(trace)), trace.encoding)
        trace.account.publish(trace.destination, headers=block, payload=payload)

    def _event(self, trace: MessageTrace) -> dict[str, Any]:
        names = sorted(trace.fields)
        header = {text(name): [text(field) for field in trace.fields[name]] for name in names}
        return {
            "server": self._identity.server(),
            "request": {"header": header, "msgsize": trace.size},
            "events": [event | {"ts": rfc3339(event["ts"])} for event in trace.events],
        }


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
