"""A client as events and requests tell of it to others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from server.core._client import Client


def client_info(client: Client, start: str) -> dict[str, Any]:
    """In the reference's order, without what says nothing. `start` is its start as a text."""
    account = client.account
    shown = {
        "start": start,
        "host": client.ip,
        "id": client.cid,
        "acc": account.name if account is not None else "",
        "user": client.user or client.options.claimed_user,
        "name": client.name,
        "lang": client.lang,
        "ver": client.version,
        "rtt": client.rtt_ns,
        "issuer_key": client.issuer_key,
    }
    return {key: value for key, value in shown.items() if value}


def client_kind(client: Client) -> dict[str, str]:
    """What follows behind the server's name."""
    return {"kind": client.kind, "client_type": client.type}
