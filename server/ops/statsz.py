"""The server's numbers as the system account hears them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from server.ops import timetext
from server.ops.usage import CpuMeter
from server.ops.varz import by_kind, optional, slow_consumers, traffic, usage

if TYPE_CHECKING:
    from server.ops.view import ServerView


def statsz(view: ServerView, cpu: CpuMeter) -> dict[str, Any]:
    broker, numbers, used = view.broker, traffic(view), usage(view, view.wall_ns(), cpu)
    sent = {"msgs": broker.out_msgs, "bytes": broker.out_bytes}
    received = {"msgs": broker.in_msgs, "bytes": broker.in_bytes}
    slow, stale = slow_consumers(view), broker.stale_connections
    return {
        "start": timetext.rfc3339(view.start_wall_ns),
        "mem": used["mem"],
        "cores": used["cores"],
        "cpu": used["cpu"],
        "connections": used["connections"],
        "total_connections": used["total_connections"],
        "active_accounts": sum(1 for each in broker.accounts.values() if each.connections),
        "subscriptions": numbers["subscriptions"],
        "sent": sent,
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": slow,
        **optional(
            slow_consumer_stats=by_kind(slow) if slow else None,
            stale_connections=stale,
            stale_connection_stats=by_kind(stale) if stale else None,
            stalled_clients=broker.stalls,
        ),
        "active_servers": 1,
        **optional(jetstream=jetstream_part(view)),
        "gomaxprocs": used["gomaxprocs"],
    }


def jetstream_part(view: ServerView) -> dict[str, Any] | None:
    """Without where the streams are kept: that is nobody's affair outside."""
    if view.jetstream is None:
        return None
    config = {k: v for k, v in view.jetstream.config().items() if k != "store_dir"}
    return {
        "config": config,
        "stats": view.jetstream.stats(),
        "limits": view.jetstream.limits(),
    }
