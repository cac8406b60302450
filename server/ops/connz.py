"""The connz page: which connections, in which order, which part of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from server.ops import timetext
from server.ops.arguments import BadArgument
from server.ops.connection import Connection, snapshot

if TYPE_CHECKING:
    from server.core._client import Client
    from server.ops.view import ServerView

DEFAULT_LIMIT = 1024
OPEN, CLOSED, ALL = 0, 1, 2
STATES = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ALL, "all": ALL}

# name -> (key, descending); `start` is the order of the cids. All look at attributes that an open
# client and the copy of a closed one share; the second argument is the time now.
SORTS: dict[str, tuple[Callable[[Any, int], Any], bool]] = {
    "cid": (lambda c, now_ns: c.cid, False),
    "start": (lambda c, now_ns: c.cid, False),
    "subs": (lambda c, now_ns: c.subscription_count, True),
    "pending": (lambda c, now_ns: c.pending_bytes, True),
    "msgs_to": (lambda c, now_ns: c.out_msgs, True),
    "msgs_from": (lambda c, now_ns: c.in_msgs, True),
    "bytes_to": (lambda c, now_ns: c.out_bytes, True),
    "bytes_from": (lambda c, now_ns: c.in_bytes, True),
    "last": (lambda c, now_ns: c.last_activity_wall_ns, True),
    "idle": (lambda c, now_ns: c.last_activity_wall_ns, False),
    "uptime": (lambda c, now_ns: (c.stop_wall_ns or now_ns) - c.start_wall_ns, False),
    "stop": (lambda c, now_ns: c.stop_wall_ns, True),
    "reason": (lambda c, now_ns: c.reason, False),
    "rtt": (lambda c, now_ns: c.rtt_ns, True),
}
ONLY_CLOSED = {"stop", "reason"}


class ConnzOptions(Struct, frozen=True, kw_only=True):
    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = OPEN
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


def connz(view: ServerView, options: ConnzOptions) -> dict[str, Any]:
    check(options)
    offset = max(options.offset, 0)
    limit = 1 if options.cid else options.limit if options.limit > 0 else DEFAULT_LIMIT
    now_ns = view.wall_ns()
    page: dict[str, Any] = {
        "server_id": view.server_id,
        "now": timetext.rfc3339(now_ns),
        "num_connections": 0,
        "total": 0,
        "offset": offset,
        "limit": limit,
        "connections": [],
    }
    if options.acc and options.acc not in view.broker.accounts:
        return page | {"server_id": "", "connections": None}
    in_account = of_account(view, options)
    page["total"] = len(in_account)
    found = [c for c in in_account if is_wanted(c, options)]
    key, descending = SORTS[options.sort or "cid"]
    found.sort(key=lambda c: key(c, now_ns), reverse=descending)
    shown = found[offset : offset + limit]
    page["num_connections"] = len(shown)
    page["connections"] = [entry(c, options, now_ns) for c in shown]
    return page


def check(options: ConnzOptions) -> None:
    if options.sort and options.sort not in SORTS:
        raise BadArgument(f"invalid sorting option: {options.sort}")
    if options.sort in ONLY_CLOSED and options.state != CLOSED:
        raise BadArgument(f"sort by {options.sort} only valid on closed connections")
    if options.filter_subject not in ("", ">") and not options.acc:
        raise BadArgument("filter by subject only valid with account filtering")


def of_account(view: ServerView, options: ConnzOptions) -> list[Client | Connection]:
    """Every connection of the asked state, of one account if one is asked for."""
    found: list[Client | Connection] = []
    if options.state in (OPEN, ALL):
        found += view.broker.clients.values()
    if options.state in (CLOSED, ALL):
        found += view.closed
    return [c for c in found if not options.acc or account_name(c) == options.acc]


def account_name(c: Client | Connection) -> str:
    if isinstance(c, Connection):
        return c.account_name
    return c.account.name if c.account is not None else ""


def is_wanted(c: Client | Connection, options: ConnzOptions) -> bool:
    if options.cid and c.cid != options.cid:
        return False
    if options.user and c.user != options.user:
        return False
    if options.mqtt_client:
        return False
    if options.filter_subject in ("", ">") or isinstance(c, Connection):
        return True
    return c.overlaps(options.filter_subject.encode("utf-8", "surrogateescape"))


def entry(c: Client | Connection, options: ConnzOptions, now_ns: int) -> dict[str, Any]:
    with_subscriptions = options.subscriptions or options.subscriptions_detail
    shown = c if isinstance(c, Connection) else snapshot(c, with_subscriptions)
    page = shown.as_json(now_ns)
    if options.auth:
        page |= shown.login_json()
    if options.subscriptions_detail and shown.subscriptions:
        page["subscriptions_list_detail"] = shown.subscription_details()
    elif options.subscriptions and shown.subscriptions:
        page["subscriptions_list"] = [sub.subject for sub in shown.subscriptions]
    return page | shown.account_json(options.auth)
