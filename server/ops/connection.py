"""One connection as the monitoring pages tell it, open or closed.

`Connection` has the names of `Client`'s attributes, so that a list of both can be sorted and
only those that are shown need a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from config.options import GLOBAL_ACCOUNT
from server.core.tlsstate import TlsState
from server.ops import timetext

if TYPE_CHECKING:
    from server.core._client import Client, SubInfo


class Connection(Struct):
    """A copy of what a client's counters and names were at one moment."""

    cid: int
    kind: str
    type: str
    ip: str
    port: int
    start_wall_ns: int
    last_activity_wall_ns: int
    stop_wall_ns: int  # 0 while it lives
    reason: str
    rtt_ns: int
    pending_bytes: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    stalls: int
    subscription_count: int
    name: str
    lang: str
    version: str
    user: str
    issuer_key: str
    account_name: str
    tls: Mapping[str, Any]
    subscriptions: Sequence[SubInfo] = ()

    def end_ns(self, now_ns: int) -> int:
        return self.stop_wall_ns or now_ns

    def as_json(self, now_ns: int) -> dict[str, Any]:
        """The keys of a connz entry in the reference's order; empty optional ones are left out."""
        end_ns = self.end_ns(now_ns)
        closed = {"stop": timetext.rfc3339(self.stop_wall_ns), "reason": self.reason}
        page = {
            "cid": self.cid,
            "kind": self.kind,
            "type": self.type,
            "ip": self.ip,
            "port": self.port,
            "start": timetext.rfc3339(self.start_wall_ns),
            "last_activity": timetext.rfc3339(self.last_activity_wall_ns),
            **(closed if self.stop_wall_ns else {}),
            "rtt": timetext.duration(self.shown_rtt_ns()),
            "uptime": timetext.uptime(end_ns - self.start_wall_ns),
            "idle": timetext.uptime(end_ns - self.last_activity_wall_ns),
            "pending_bytes": self.pending_bytes,
            "in_msgs": self.in_msgs,
            "out_msgs": self.out_msgs,
            "in_bytes": self.in_bytes,
            "out_bytes": self.out_bytes,
        }
        optional = {"name": self.name, "lang": self.lang, "version": self.version}
        if self.stalls:
            page["stalls"] = self.stalls
        page["subscriptions"] = self.subscription_count
        page.update({key: text for key, text in optional.items() if text})
        for key in ("tls_version", "tls_cipher_suite", "tls_first"):
            if self.tls.get(key):
                page[key] = self.tls[key]
        return page

    def login_json(self) -> dict[str, Any]:
        """What `auth=1` adds before the subscriptions."""
        page: dict[str, Any] = {}
        if self.tls.get("tls_peer_certs"):
            page["tls_peer_certs"] = self.tls["tls_peer_certs"]
        if self.user:
            page["authorized_user"] = self.user
        if self.account_name and self.account_name != GLOBAL_ACCOUNT:
            page["account"] = self.account_name
        return page

    def account_json(self, auth: bool) -> dict[str, Any]:
        """What `auth=1` adds behind the subscriptions; a closed one's issuer is always told."""
        page: dict[str, Any] = {}
        if self.issuer_key and (auth or self.stop_wall_ns):
            page["issuer_key"] = self.issuer_key
        in_global = self.account_name == GLOBAL_ACCOUNT
        if auth and self.account_name and not (in_global and self.stop_wall_ns):
            page["name_tag"] = self.account_name
        return page

    def subscription_details(self) -> list[dict[str, Any]]:
        """Those of a closed connection say their account and no limit, as the reference's do."""
        if not self.stop_wall_ns:
            return [subscription_json(sub, self.cid) for sub in self.subscriptions]
        tags = {"account": self.account_name, "account_tag": self.account_name}
        pages = [tags | subscription_json(sub, self.cid) for sub in self.subscriptions]
        for page in pages:
            page.pop("max", None)
        return pages

    def shown_rtt_ns(self) -> int:
        """Below a millisecond the nanoseconds are noise and are cut off."""
        if 1_000 < self.rtt_ns < 1_000_000:
            return self.rtt_ns // 1_000 * 1_000
        return self.rtt_ns


def subscription_json(sub: SubInfo, cid: int) -> dict[str, Any]:
    page: dict[str, Any] = {"subject": sub.subject}
    if sub.queue:
        page["qgroup"] = sub.queue
    page["sid"] = sub.sid
    page["msgs"] = sub.delivered
    if sub.max:
        page["max"] = sub.max
    page["cid"] = cid
    return page


def snapshot(client: Client, with_subscriptions: bool) -> Connection:
    """A copy of `client` as it is now."""
    return Connection(
        cid=client.cid,
        kind=client.kind,
        type=client.type,
        ip=client.ip,
        port=client.port,
        start_wall_ns=client.start_wall_ns,
        last_activity_wall_ns=client.last_activity_wall_ns,
        stop_wall_ns=client.stop_wall_ns,
        reason=client.reason,
        rtt_ns=client.rtt_ns,
        pending_bytes=client.pending_bytes,
        in_msgs=client.in_msgs,
        out_msgs=client.out_msgs,
        in_bytes=client.in_bytes,
        out_bytes=client.out_bytes,
        stalls=client.stalls,
        subscription_count=client.subscription_count,
        name=client.name,
        lang=client.lang,
        version=client.version,
        user=client.user or client.options.claimed_user,
        issuer_key=client.issuer_key,
        account_name=client.account.name if client.account is not None else "",
        tls=client.tls.as_connz() if isinstance(client.tls, TlsState) else {},
        subscriptions=client.subscriptions() if with_subscriptions else (),
    )
