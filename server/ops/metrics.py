"""The same numbers in Prometheus text, named as the reference's exporter names them.

The exporter walks the JSON of a page and calls each number `<prefix>_<page>_<path>`; a few texts
and times become gauges too. Its default prefix is `gnatsd`; `/metrics?prefix=nats` gives the one
that its Helm chart sets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from server.ops.connz import DEFAULT_LIMIT

if TYPE_CHECKING:
    from server.core._client import Client

DEFAULT_PREFIX = "gnatsd"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX_PATTERN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,63}")
LABEL_KEYS = {"server_id", "server_name", "version", "domain", "leader", "name"}
TIME_KEYS = {"start", "config_load_time"}
COUNTERS = {"connz_in_bytes", "connz_out_bytes", "connz_in_msgs", "connz_out_msgs"}


def text(
    prefix: str,
    varz: Mapping[str, Any],
    connections: Mapping[str, int],
    subsz: Mapping[str, Any],
    healthz: Mapping[str, Any],
) -> str:
    server_id = varz["server_id"]
    lines: list[str] = []
    pages = {"varz": varz, "connz": connections, "subsz": subsz}
    for page, content in pages.items():
        for path, value, label in numbers(content):
            name = f"{page}_{path}"
            kind = "counter" if name in COUNTERS else "gauge"
            lines += sample(f"{prefix}_{name}", kind, server_id, value, label)
    healthy = healthz["status"] == "ok"
    lines += sample(f"{prefix}_healthz_status", "gauge", server_id, 0 if healthy else 1, None)
    lines += sample(
        f"{prefix}_healthz_status_value", "gauge", server_id, int(healthy), healthz["status"]
    )
    return "\n".join(lines) + "\n"


def connection_totals(clients: Collection[Client]) -> dict[str, int]:
    """The connz page's totals over all open connections, without making an entry for each."""
    totals = {"num_connections": len(clients), "total": len(clients), "offset": 0}
    totals["limit"] = max(len(clients), DEFAULT_LIMIT)
    totals["pending_bytes"] = sum(c.pending_bytes for c in clients)
    totals["subscriptions"] = sum(c.subscription_count for c in clients)
    totals["in_bytes"] = sum(c.in_bytes for c in clients)
    totals["out_bytes"] = sum(c.out_bytes for c in clients)
    totals["in_msgs"] = sum(c.in_msgs for c in clients)
    totals["out_msgs"] = sum(c.out_msgs for c in clients)
    return totals


def numbers(page: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float, str | None]]:
    """(path, number, value label) of all that becomes a sample."""
    for key, value in page.items():
        where = re.sub("_+", "_", f"{path}_{key}".replace("/", "_")).strip("_")
        if isinstance(value, Mapping):
            yield from numbers(value, where)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield where, value, None
        elif isinstance(value, str) and key in TIME_KEYS:
            moment = datetime.fromisoformat(value[:26].rstrip("Z").ljust(19) + "+00:00")
            yield where, int(moment.timestamp() * 1000), None
        elif isinstance(value, str) and key in LABEL_KEYS:
            yield where, 1, value


def sample(name: str, kind: str, server_id: str, value: float, label: str | None) -> list[str]:
    labels = f'server_id="{escape(server_id)}"'
    if label is not None:
        labels += f',value="{escape(label)}"'
    return [f"# TYPE {name} {kind}", f"{name}{{{labels}}} {value}"]


def escape(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
