"""What the server announces about itself in the system account, to whoever listens there.

A connection's begin and end, how many an account has, the server's numbers from time to time, its
lame duck mode and its end. Nothing is made while nobody listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from config.limits import MILLISECOND_NS, SECOND_NS
from config.options import GLOBAL_ACCOUNT
from server.core.clientinfo import client_info, client_kind
from server.ops.pages import account_statistics
from server.ops.statsz import statsz
from server.ops.timetext import rfc3339
from server.ops.usage import CpuMeter

if TYPE_CHECKING:
    from server.core._account import Account
    from server.core._client import Client
    from server.ops.identity import Identity
    from server.ops.view import ServerView

FIRST_STATSZ_NS: Final = 250 * MILLISECOND_NS
STATSZ_INTERVAL_NS: Final = 10 * SECOND_NS
STATSZ_PAUSE_NS: Final = SECOND_NS
CONNECTIONS_INTERVAL_NS: Final = 30 * SECOND_NS
AUTH_FAILURE: Final = "Authentication Failure"


class ServerEvents:
    """The events of one server. `tick` is called a few times a second.

    When something is due goes by the monotonic clock: the time of day may be set back.
    """

    def __init__(self, view: ServerView, identity: Identity) -> None:
        self._view = view
        self._identity = identity
        self._cpu = CpuMeter()
        self._announced: set[Client] = set()
        self._repeat_ns: dict[Account, int] = {}  # when an account's connections are told again
        self._statsz_interval_ns = FIRST_STATSZ_NS
        self._statsz_next_ns = view.broker.now_ns() + FIRST_STATSZ_NS
        self._statsz_last_ns = -STATSZ_PAUSE_NS

    # The server

    def lame_duck(self) -> None:
        self._tell_server("LAMEDUCK")

    def shutdown(self) -> None:
        self._tell_server("SHUTDOWN")

    def _tell_server(self, word: str) -> None:
        subject = f"$SYS.SERVER.{self._view.server_id}.{word}"
        if self._is_heard(subject):
            self._publish(subject, self._identity.server())

    def tick(self) -> None:
        now_ns = self._view.broker.now_ns()
        if now_ns >= self._statsz_next_ns:
            self._statsz_interval_ns = min(2 * self._statsz_interval_ns, STATSZ_INTERVAL_NS)
            self._statsz_next_ns = now_ns + self._statsz_interval_ns
            self.tell_statistics()
        for account, at_ns in list(self._repeat_ns.items()):
            if now_ns >= at_ns:
                self._tell_connections(account)

    def tell_statistics(self) -> None:
        """At most once a second, whoever asks."""
        now_ns = self._view.broker.now_ns()
        subject = f"$SYS.SERVER.{self._view.server_id}.STATSZ"
        pause_ns = min(STATSZ_PAUSE_NS, self._statsz_interval_ns)
        if now_ns - self._statsz_last_ns >= pause_ns and self._is_heard(subject):
            self._statsz_last_ns = now_ns
            self._publish(subject, self.statistics())

    def statistics(self) -> dict[str, Any]:
        return {"server": self._identity.server(), "statsz": statsz(self._view, self._cpu)}

    # Connections

    def connected(self, client: Client) -> None:
        """The client has signed in; called again when it does so again."""
        account = client.account
        if account is None or client in self._announced or client.closed:
            return
        self._announced.add(client)
        self._tell_connections(account)
        subject = f"$SYS.ACCOUNT.{account.name}.CONNECT"
        if self._is_heard(subject):
            event = self._identity.event("client_connect")
            described = client_info(client, rfc3339(client.start_wall_ns))
            described.pop("rtt", None)
            event["client"] = described | {"name_tag": account.name} | client_kind(client)
            self._publish(subject, event)

    def disconnected(self, client: Client, reason: str) -> None:
        """The client is gone; its counters are readable yet."""
        if client in self._announced:
            self._announced.discard(client)
            if client.account is not None:
                self._tell_connections(client.account)
        broker = self._view.broker
        system = broker.system_account
        if reason == AUTH_FAILURE:
            subject = f"$SYS.SERVER.{self._view.server_id}.CLIENT.AUTH.ERR"
            self._tell_end(system, subject, client, reason)
            # For those who own the account and are not in the system's.
            own = client.account or broker.accounts[GLOBAL_ACCOUNT]
            self._tell_end(own, "$SYS.ACCOUNT.CLIENT.AUTH.ERR", client, reason)
        name = client.account.name if client.account is not None else GLOBAL_ACCOUNT
        self._tell_end(system, f"$SYS.ACCOUNT.{name}.DISCONNECT", client, reason)

    def _tell_end(self, hearer: Account, subject: str, client: Client, reason: str) -> None:
        if self._view.options.no_system_account or not hearer.has_interest(subject):
            return
        account = client.account.name if client.account is not None else GLOBAL_ACCOUNT
        event = self._identity.event("client_disconnect")
        described = client_info(client, rfc3339(client.start_wall_ns)) | {"acc": account}
        described |= {"stop": event["timestamp"], "name_tag": account}
        event["client"] = described | client_kind(client)
        event["sent"] = {"msgs": client.in_msgs, "bytes": client.in_bytes}
        event["received"] = {"msgs": client.out_msgs, "bytes": client.out_bytes}
        event["reason"] = reason
        hearer.publish(subject, payload=msgspec.json.encode(event))

    def _tell_connections(self, account: Account) -> None:
        """Now, and again from time to time while there are any."""
        if account.name == GLOBAL_ACCOUNT:
            return
        if account.connections:
            self._repeat_ns[account] = self._view.broker.now_ns() + CONNECTIONS_INTERVAL_NS
        else:
            self._repeat_ns.pop(account, None)
        for subject in (
            f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS",
            f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS",
        ):
            if self._is_heard(subject):
                self._publish(subject, self.connections(account))

    def connections(self, account: Account) -> dict[str, Any]:
        return self._identity.event("account_connections") | account_statistics(account)

    # Sending

    def _is_heard(self, subject: str) -> bool:
        return (
            not self._view.options.no_system_account
            and self._view.broker.system_account.has_interest(subject)
        )

    def _publish(self, subject: str, content: dict[str, Any]) -> None:
        payload = msgspec.json.encode(content)
        self._view.broker.system_account.publish(subject, payload=payload)
