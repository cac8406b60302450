"""The varz page: what the server is, its limits, and what it has done."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from config import featureflags
from server.ops import timetext
from server.ops.jsz import varz_part
from server.ops.usage import CpuMeter, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.ops.view import ServerView

PROTO = 1


def varz(view: ServerView, cpu: CpuMeter, requests: Mapping[str, int]) -> dict[str, Any]:
    now_ns = view.wall_ns()
    return {
        **identity(view),
        **limits(view),
        **later_rooms(view),
        **usage(view, now_ns, cpu),
        **traffic(view),
        "http_req_stats": dict(requests),
        "config_load_time": timetext.rfc3339(view.config_loaded_wall_ns),
        **optional(config_digest=view.options.config_digest),
        **optional(tags=list(view.options.server_tags), metadata=view.options.server_metadata),
        "feature_flags": featureflags.merged(view.options.feature_flags),
        **optional(system_account=system_account(view)),
        "slow_consumer_stats": by_kind(slow_consumers(view)),
        "stale_connection_stats": by_kind(view.broker.stale_connections),
        **optional(tls_cert_not_after=view.tls_not_after),
    }


def optional(**values: Any) -> dict[str, Any]:
    """Only the values that are not empty."""
    return {key: value for key, value in values.items() if value}


def identity(view: ServerView) -> dict[str, Any]:
    options = view.options
    tls = options.tls
    return {
        "server_id": view.server_id,
        "server_name": view.server_name,
        "version": view.version,
        "martlet_version": view.martlet_version,
        "proto": PROTO,
        "go": view.runtime,
        "host": options.host,
        "port": view.port,
        **optional(
            auth_required=view.broker.auth_required,
            tls_required=tls is not None and not options.allow_non_tls,
            tls_verify=tls is not None and tls.verify,
            connect_urls=list(view.connect_urls),
        ),
    }


def limits(view: ServerView) -> dict[str, Any]:
    options = view.options
    return {
        "max_connections": options.max_connections,
        **optional(max_subscriptions=options.max_subscriptions),
        "ping_interval": options.ping_interval_ns,
        "ping_max": options.max_pings_out,
        "http_host": options.http.host,
        "http_port": view.http_port,
        "http_base_path": options.http.base_path.rstrip("/"),
        "https_port": view.https_port,
        "auth_timeout": seconds(options.auth.timeout_ns),
        "max_control_line": options.max_control_line_bytes,
        "max_payload": options.max_payload_bytes,
        "max_pending": options.max_pending_bytes,
        "tls_timeout": seconds(options.tls.timeout_ns) if options.tls else 2,
        "write_deadline": options.write_deadline_ns,
        **optional(
            write_timeout="" if options.write_timeout == "default" else options.write_timeout
        ),
    }


def seconds(duration_ns: int) -> float:
    """A whole number of seconds without a fraction, as Go prints a float."""
    whole, rest = divmod(duration_ns, timetext.NS_PER_S)
    return duration_ns / timetext.NS_PER_S if rest else whole


def later_rooms(view: ServerView) -> dict[str, Any]:
    """Blocks that scrapers expect to be there; empty while their room is not in use."""
    later: dict[str, Any] = {key: {} for key in ("cluster", "gateway", "leaf", "mqtt", "websocket")}
    return later | {"jetstream": varz_part(view.jetstream)}


def usage(view: ServerView, now_ns: int, cpu: CpuMeter) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    broker = view.broker
    return {
        "start": timetext.rfc3339(view.start_wall_ns),
        "now": timetext.rfc3339(now_ns),
        "uptime": timetext.uptime(now_ns - view.start_wall_ns),
        "mem": resident_bytes(),
        "cores": cores,
        "gomaxprocs": cores,
        "cpu": cpu.percent(),
        "connections": len(broker.clients),
        "total_connections": broker.total_connections,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
    }


def traffic(view: ServerView) -> dict[str, Any]:
    """Clients are the only peers so far, so their share is the whole."""
    broker = view.broker
    return {
        "in_msgs": broker.in_msgs,
        "in_bytes": broker.in_bytes,
        "in_client_msgs": broker.in_msgs,
        "in_client_bytes": broker.in_bytes,
        "out_msgs": broker.out_msgs,
        "out_bytes": broker.out_bytes,
        "out_client_msgs": broker.out_msgs,
        "out_client_bytes": broker.out_bytes,
        "slow_consumers": slow_consumers(view),
        "stale_connections": broker.stale_connections,
        "stalled_clients": broker.stalls,
        "subscriptions": sum(account.subscriptions for account in broker.accounts.values()),
    }


def slow_consumers(view: ServerView) -> int:
    return view.broker.slow_consumers_pending + view.broker.slow_consumers_deadline


def by_kind(clients: int) -> dict[str, int]:
    return {"clients": clients, "routes": 0, "gateways": 0, "leafs": 0}


def system_account(view: ServerView) -> str:
    return "" if view.options.no_system_account else view.options.system_account
