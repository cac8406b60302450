"""The jsz page and the JetStream part of varz."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from server.ops import arguments, timetext

if TYPE_CHECKING:
    from server.ops.view import JetStreamView, ServerView

PAGE_ROWS: Final = 1024
NOTHING_USED: Final = (
    "memory",
    "storage",
    "reserved_memory",
    "reserved_storage",
    "accounts",
    "ha_assets",
)


def jsz(view: ServerView, query: Mapping[str, str]) -> dict[str, Any]:
    offset, limit = arguments.integer(query, "offset"), arguments.integer(query, "limit")
    wanted = {
        name: arguments.boolean(query, name)
        for name in (
            "accounts",
            "streams",
            "consumers",
            "direct-consumers",
            "config",
            "leader-only",
            "stream-leader-only",
            "raft",
        )
    }
    now = {"server_id": view.server_id, "now": timetext.rfc3339(view.wall_ns())}
    jetstream = view.jetstream
    if jetstream is None:
        return disabled(now)
    page = {**jetstream.stats(), **now, "config": jetstream.config(), "limits": jetstream.limits()}
    totals = jetstream.totals()
    page |= totals
    if wanted["raft"]:
        # One server leads all that it has.
        led = {f"{key}_leader": totals[key] for key in ("streams", "consumers")}
        page |= {key: count for key, count in led.items() if count}
    names = [query["acc"]] if query.get("acc") else []
    if not names and (wanted["accounts"] or wanted["streams"] or wanted["consumers"]):
        names = jetstream.account_names()
        if limit >= 0:
            names = names[max(offset, 0) :][: limit or PAGE_ROWS]
    found = [account_jsz(view, name, query) for name in names]
    details = [detail for detail in found if detail is not None]
    if details:
        page["account_details"] = details
    page["total"] = len(jetstream.account_names())
    return page


def account_jsz(view: ServerView, name: str, query: Mapping[str, str]) -> dict[str, Any] | None:
    """One account; None when it has no JetStream."""
    if view.jetstream is None:
        return None
    direct = arguments.boolean(query, "direct-consumers")
    consumers = arguments.boolean(query, "consumers") or direct
    return view.jetstream.account_detail(
        name,
        arguments.boolean(query, "streams") or consumers,
        arguments.boolean(query, "config"),
        consumers,
        direct,
    )


def disabled(now: dict[str, Any]) -> dict[str, Any]:
    """JetStream is off: every number is zero and the page says so."""
    return {
        **dict.fromkeys(NOTHING_USED, 0),
        "api": {"level": 0, "total": 0, "errors": 0},
        **now,
        "disabled": True,
        "config": {"max_memory": 0, "max_storage": 0},
        **dict.fromkeys(("streams", "consumers", "messages", "bytes", "total"), 0),
    }


def varz_part(jetstream: JetStreamView | None) -> dict[str, Any]:
    if jetstream is None:
        return {}
    return {
        "config": jetstream.config(),
        "stats": jetstream.stats(),
        "limits": jetstream.limits(),
    }
