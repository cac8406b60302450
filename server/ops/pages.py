"""The smaller monitoring pages: subscriptions, accounts, health, and those of later rooms."""

from __future__ import annotations

import faulthandler
import gc
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from server.core.subject import is_valid_literal
from server.ops import timetext
from server.ops.arguments import BadArgument
from server.ops.connection import subscription_json
from server.ops.usage import resident_bytes

if TYPE_CHECKING:
    from server.core._account import Account
    from server.ops.view import ServerView

DEFAULT_LIMIT = 1024
# Word for word the reference's, which waits that long for its listener.
NOT_LISTENING = "failed to be ready for connections after 1ms: server"


class HealthAsked(Struct, frozen=True, kw_only=True):
    """What a probe wants to know; each `js_` word makes it know less."""

    js_server_only: bool = False
    js_enabled_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


class SubszOptions(Struct, frozen=True, kw_only=True):
    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    acc: str = ""
    test: str = ""


def stamped(view: ServerView) -> dict[str, Any]:
    return {"server_id": view.server_id, "now": timetext.rfc3339(view.wall_ns())}


def subsz(view: ServerView, options: SubszOptions) -> dict[str, Any]:
    if options.test and not is_valid_literal(options.test):
        raise BadArgument(f"invalid test subject, must be valid publish subject: {options.test}")
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else DEFAULT_LIMIT
    accounts = [a for a in view.broker.accounts.values() if options.acc in ("", a.name)]
    page = stamped(view) | trie_statistics(accounts)
    page |= {"total": 0, "offset": offset, "limit": limit}
    if options.subscriptions:
        page["total"], shown = listing(view, options, offset, limit)
        if shown:
            page["subscriptions_list"] = shown
    return page


def listing(
    view: ServerView, options: SubszOptions, offset: int, limit: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many client subscriptions there are and a page of them; the others are only counted."""
    total = 0
    shown: list[dict[str, Any]] = []
    test = as_bytes(options.test)
    for client in view.broker.clients.values():
        account = client.account.name if client.account is not None else ""
        if options.acc not in ("", account):
            continue
        count = client.reached_count(test) if test else client.subscription_count
        skip, end = max(offset - total, 0), min(offset + limit - total, count)
        if skip < end:
            tags = {"account": account, "account_tag": account}
            page = client.subscriptions(skip, end - skip, test)
            shown += [tags | subscription_json(sub, client.cid) for sub in page]
        total += count
    return total, shown


def subscriber_count(view: ServerView, account: Account, subject: str, queue: str = "") -> int:
    """How many of an account's clients' subscriptions a subject reaches, of one queue if named."""
    return sum(
        client.reached_count(as_bytes(subject), as_bytes(queue))
        for client in view.broker.clients.values()
        if client.account is account
    )


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def trie_statistics(accounts: Sequence[Account]) -> dict[str, Any]:
    """The tries' counters summed up; rates and means are taken over the sums."""
    all_stats = [account.sublist.stats() for account in accounts]
    total = {
        key: sum(stats[key] for stats in all_stats)
        for key in ("num_subscriptions", "num_cache", "num_inserts", "num_removes", "num_matches")
    }
    hits = sum(stats["cache_hits"] for stats in all_stats)
    fan_out = sum(stats["total_fanout"] for stats in all_stats)
    cached = total["num_cache"]
    return total | {
        "cache_hit_rate": hits / total["num_matches"] if total["num_matches"] else 0,
        "max_fanout": max((stats["max_fanout"] for stats in all_stats), default=0),
        "avg_fanout": fan_out / cached if cached else 0,
    }


def accountz(view: ServerView, account_name: str) -> dict[str, Any]:
    page = stamped(view)
    if not view.options.no_system_account:
        page["system_account"] = view.options.system_account
    if not account_name:
        return page | {"accounts": list(view.broker.accounts)}
    account = view.broker.accounts.get(account_name)
    if account is None:
        raise BadArgument(f"Account {account_name} does not exist")
    return page | {"account_detail": account_detail(view, account)}


def account_detail(view: ServerView, account: Account) -> dict[str, Any]:
    page = {
        "account_name": account.name,
        "update_time": timetext.rfc3339(view.config_loaded_wall_ns),
        "is_system": account is view.broker.system_account,
        "expired": False,
        "complete": True,
        "jetstream_enabled": has_jetstream(view, account),
        "leafnode_connections": 0,
        "client_connections": account.connections,
        "subscriptions": account.subscriptions,
        "mappings": mappings_of(account),
        "name_tag": account.name,
        "sublist_stats": trie_statistics([account]),
    }
    absent = {"is_system": page["is_system"], "mappings": page["mappings"]}
    return {k: v for k, v in page.items() if absent.get(k, True)}


def mappings_of(account: Account) -> dict[str, Any]:
    return account.mappings.described if account.mappings is not None else {}


def has_jetstream(view: ServerView, account: Account) -> bool:
    return view.jetstream is not None and account.name in view.jetstream.account_names()


def accstatz(view: ServerView, with_unused: bool, names: Sequence[str] = ()) -> dict[str, Any]:
    """Of all accounts, or of those that are named."""
    return stamped(view) | {
        "account_statz": [
            account_statistics(account)
            for account in view.broker.accounts.values()
            if (account.name in names if names else True) and (with_unused or account.connections)
        ]
    }


def account_statistics(account: Account) -> dict[str, Any]:
    """What an account has sent to its clients and received from them."""
    return {
        "acc": account.name,
        "name": account.name,
        "conns": account.connections,
        "leafnodes": 0,
        "total_conns": account.connections,
        "num_subscriptions": account.subscriptions,
        "sent": data_statistics(account.out_msgs, account.out_bytes),
        "received": data_statistics(account.in_msgs, account.in_bytes),
        "slow_consumers": account.slow_consumers,
    }


def data_statistics(msgs: int, size: int) -> dict[str, Any]:
    none = {"msgs": 0, "bytes": 0}
    return {"msgs": msgs, "bytes": size, "gateways": none, "routes": none, "leafs": none}


def healthz(view: ServerView, asked: HealthAsked) -> tuple[int, dict[str, Any]]:
    """Status and page: what is wrong first, from the question itself down to single streams."""
    if wrong := health_query_error(asked):
        return 400, unhealthy("error", [{"type": "BAD_REQUEST", "error": wrong}], asked.details)
    if not view.listening:
        error = {"type": "CONNECTION", "error": NOT_LISTENING}
        return 500, unhealthy("error", [error], asked.details)
    if asked.js_server_only:
        return 200, {"status": "ok"}
    errors = [dict(error) for error in view.health_errors()]
    if asked.js_enabled_only:
        errors = [error for error in errors if error["type"] == "JETSTREAM"]
    elif not errors and (missing := missing_asset(view, asked)) is not None:
        return 404, unhealthy("unavailable", [missing], asked.details)
    if errors:
        return 503, unhealthy("unavailable", errors, asked.details)
    return 200, {"status": "ok"}


def health_query_error(asked: HealthAsked) -> str:
    if asked.stream and not asked.account:
        return '"account" must not be empty when checking stream health'
    if asked.consumer and not asked.stream:
        return '"stream" must not be empty when checking consumer health'
    return ""


def missing_asset(view: ServerView, asked: HealthAsked) -> dict[str, str] | None:
    """The account, stream or consumer that is asked about and is not there."""
    account, stream, consumer = asked.account, asked.stream, asked.consumer
    if view.jetstream is None or not account:
        return None
    known = view.jetstream.stream_names(account)
    if known is None:
        text = f'JetStream account "{account}" not found'
        return {"type": "ACCOUNT", "account": account, "error": text}
    if stream and stream not in known:
        text = f'JetStream stream "{stream}" not found on account "{account}"'
        return {"type": "STREAM", "account": account, "stream": stream, "error": text}
    if consumer and consumer not in view.jetstream.consumer_names(account, stream):
        text = (
            f'JetStream consumer "{consumer}" not found for stream "{stream}" on account '
            f'"{account}"'
        )
        where = {"account": account, "stream": stream, "consumer": consumer}
        return {"type": "CONSUMER", **where, "error": text}
    return None


def unhealthy(status: str, errors: list[dict[str, str]], with_details: bool) -> dict[str, Any]:
    if with_details:
        return {"status": "error", "errors": errors}
    return {"status": status, "error": errors[0]["error"]}


def routez(view: ServerView) -> dict[str, Any]:
    page = {"server_id": view.server_id, "server_name": view.server_name}
    return page | {"now": timetext.rfc3339(view.wall_ns()), "num_routes": 0, "routes": []}


def gatewayz(view: ServerView) -> dict[str, Any]:
    return stamped(view) | {"outbound_gateways": {}, "inbound_gateways": {}}


def leafz(view: ServerView) -> dict[str, Any]:
    return stamped(view) | {"leafnodes": 0, "leafs": []}


def expvar() -> dict[str, Any]:
    """Python's share of what Go shows under /debug/vars."""
    return {
        "cmdline": sys.argv[:1],
        "memstats": {
            "Sys": resident_bytes(),
            "NumGC": sum(s["collections"] for s in gc.get_stats()),
        },
    }


def stacks() -> bytes:
    """The Python stacks of all threads."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()
