"""What may be asked of the server over NATS: `$SYS.REQ.>`, mostly the monitoring pages.

The system account may ask for everything. Every other account may ask about itself: its
connections, its statistics, and who the asking user is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from server.ops import pages
from server.ops.arguments import BadArgument
from server.ops.connz import ConnzOptions, connz
from server.ops.encoding import accepted_encoding, encoded
from server.ops.jsz import account_jsz, jsz
from server.ops.pages import HealthAsked, SubszOptions
from server.ops.requests import (
    AccountStatzRequest,
    AccountzRequest,
    BadRequest,
    ClientRequest,
    ConnzRequest,
    Filters,
    HealthzRequest,
    JszRequest,
    ProfilezRequest,
    SubszRequest,
    read,
)
from server.ops.usage import CpuMeter
from server.ops.varz import varz

if TYPE_CHECKING:
    from server.core._account import Account, PySub
    from server.core._client import Client
    from server.core.msgtrace import MessageTrace
    from server.ops.events import ServerEvents
    from server.ops.identity import Identity
    from server.ops.view import ServerView

Shape = TypeVar("Shape", bound=Filters)
Page = Callable[[Any], Any]
PING: Final = "$SYS.REQ.SERVER.PING"
BAD_REQUEST: Final = 400
FAILED: Final = 500


class Failed(Exception):
    """The request cannot be done; the text goes to the requester with code 500."""


class NotThere(Failed):
    """What is asked about does not exist: the answer says so beside data that is null."""


class Silence(Exception):
    """There is nothing to tell, so nothing is said."""


class Controls(Protocol):
    """What may be done to the server, beside looking at it."""

    def try_reload(self) -> str:
        """Reads the configuration again; what is wrong with it, or nothing."""

    def send_lame_duck(self, client: Client) -> bool:
        """Tells one client to go elsewhere; False when it would not understand."""

    def permissions_of(self, client: Client) -> Mapping[str, Any] | None:
        """What a client's user may do, as its configuration says it."""


class SystemServices:
    def __init__(
        self, view: ServerView, controls: Controls, identity: Identity, events: ServerEvents
    ) -> None:
        self._view = view
        self._controls = controls
        self._identity = identity
        self._events = events
        self._cpu = CpuMeter()
        self._subs: dict[str, list[PySub]] = {}
        self._pages: dict[str, tuple[type[Filters], Page]] = {
            "VARZ": (Filters, lambda asked: varz(view, self._cpu, {})),
            "SUBSZ": (SubszRequest, lambda asked: self._subsz(asked, asked.account)),
            "CONNZ": (ConnzRequest, lambda asked: self._connz(asked, asked.acc)),
            "ROUTEZ": (Filters, lambda asked: pages.routez(view)),
            "GATEWAYZ": (Filters, lambda asked: pages.gatewayz(view)),
            "LEAFZ": (Filters, lambda asked: pages.leafz(view)),
            "ACCOUNTZ": (AccountzRequest, lambda asked: pages.accountz(view, asked.account)),
            "JSZ": (JszRequest, lambda asked: jsz(view, jsz_query(asked))),
            "HEALTHZ": (HealthzRequest, self._healthz),
            "PROFILEZ": (ProfilezRequest, profilez),
            "EXPVARZ": (Filters, lambda asked: pages.expvar()),
            "IPQUEUESZ": (Filters, lambda asked: {}),
            "RAFTZ": (Filters, lambda asked: {}),
        }

    # Listening

    def listen(self) -> None:
        """Serve every account there is; called again when there may be more."""
        view = self._view
        if view.options.no_system_account:
            return
        for account in list(view.broker.accounts.values()):
            if account.name not in self._subs:
                is_system = account is view.broker.system_account
                serve = self._serve_system if is_system else self._serve_account
                self._subs[account.name] = serve(account)

    def forget(self, name: str) -> None:
        """An account that is no more; one of that name later is another one."""
        for sub in self._subs.pop(name, ()):
            sub.unsubscribe()

    def close(self) -> None:
        for subs in self._subs.values():
            for sub in subs:
                sub.unsubscribe()
        self._subs.clear()

    def _serve_system(self, account: Account) -> list[PySub]:
        own = f"$SYS.REQ.SERVER.{self._view.server_id}."
        subs = [account.serve(PING, self._on_statsz)]
        for prefix in (PING + ".", own):
            subs.append(account.serve(prefix + "IDZ", self._on_idz))
            subs.append(account.serve(prefix + "STATSZ", self._on_statsz))
            for name, (shape, page) in self._pages.items():
                subs.append(self._serve(account, prefix + name, shape, page))
        subs.append(self._serve(account, own + "RELOAD", Filters, self._reload))
        subs.append(self._serve(account, own + "KICK", ClientRequest, self._kick))
        subs.append(self._serve(account, own + "LDM", ClientRequest, self._send_lame_duck))
        subs += [
            account.serve(f"$SYS.REQ.ACCOUNT.*.{name}", self._on_account)
            for name in ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ")
        ]
        subs.append(account.serve("$SYS.REQ.ACCOUNT.*.CONNS", self._on_connections))
        subs.append(account.serve("$SYS.REQ.USER.INFO", self._on_user_info))
        subs.append(account.serve("$SYS.DEBUG.SUBSCRIBERS", self._on_subscribers))
        return subs

    def _serve_account(self, account: Account) -> list[PySub]:
        """What an account may ask about itself."""

        def own_connections(asked: ConnzRequest) -> Any:
            return self._connz(asked, account.name)

        def own_statistics(asked: AccountStatzRequest) -> Any:
            return self._account_statz([account.name], asked.include_unused)

        def note(trace: MessageTrace, subject: str) -> None:
            """These are services of the system account, under other subjects there."""
            words = subject.split(".")
            about = "USER" if words[2] == "USER" else "ACCOUNT"
            to = f"$SYS.REQ.{about}.{account.name}.{words[-1]}"
            trace.imported(self._view.broker.system_account.name, subject, to)

        about = "$SYS.REQ.ACCOUNT.PING."
        subs = [
            self._serve(account, about + "CONNZ", ConnzRequest, own_connections),
            self._serve(account, PING + ".CONNZ", ConnzRequest, own_connections),
            self._serve(account, about + "STATZ", AccountStatzRequest, own_statistics),
            account.serve("$SYS.REQ.USER.INFO", self._on_user_info),
        ]
        for sub in subs:
            sub.on_traced = note
        return subs

    def _serve(
        self, account: Account, subject: str, shape: type[Shape], page: Callable[[Shape], Any]
    ) -> PySub:
        def hear(subject: str, reply: str, block: bytes, body: bytes, who: Client | None) -> None:
            self._answer(account, reply, block, body, shape, page)

        return account.serve(subject, hear)

    # Answering

    def _answer(
        self,
        account: Account,
        reply: str,
        headers: bytes,
        body: bytes,
        shape: type[Shape],
        page: Callable[[Shape], Any],
    ) -> None:
        if not reply:
            return
        answer: dict[str, Any] = {"server": self._identity.server()}
        try:
            asked = read(body, shape)
            if not asked.passes(self._view):
                return
            found = page(asked)
            if found is not None:
                answer["data"] = found
        except Silence:
            return
        except BadRequest as error:
            answer["error"] = {"code": BAD_REQUEST, "description": str(error)}
        except (BadArgument, Failed) as error:
            if not isinstance(error, Failed) or isinstance(error, NotThere):
                answer["data"] = None
            answer["error"] = {"code": FAILED, "description": str(error)}
        encoding = "" if "error" in answer else accepted_encoding(headers)
        block, payload = encoded(msgspec.json.encode(answer), encoding)
        account.publish(reply, headers=block, payload=payload)

    def _on_idz(
        self, subject: str, reply: str, headers: bytes, body: bytes, client: Client | None
    ) -> None:
        view = self._view
        if reply:
            own = {"name": view.server_name, "host": view.options.host, "id": view.server_id}
            view.broker.system_account.publish(reply, payload=msgspec.json.encode(own))

    def _on_statsz(
        self, subject: str, reply: str, headers: bytes, body: bytes, client: Client | None
    ) -> None:
        if not reply:
            self._events.tell_statistics()
            return
        try:
            if not read(body, Filters).passes(self._view):
                return
            answer = self._events.statistics()
        except BadRequest as error:
            answer = {
                "server": self._identity.server(),
                "error": {"code": BAD_REQUEST, "description": str(error)},
            }
        system = self._view.broker.system_account
        system.publish(reply, payload=msgspec.json.encode(answer))

    # Pages

    def _connz(self, asked: ConnzRequest, account: str) -> Any:
        given = {key: getattr(asked, key) for key in ConnzOptions.__struct_fields__}
        return connz(self._view, ConnzOptions(**given | {"acc": account}))

    def _subsz(self, asked: SubszRequest, account: str, listed: bool = False) -> Any:
        options = SubszOptions(
            offset=asked.offset,
            limit=asked.limit,
            subscriptions=asked.subscriptions or listed,
            acc=account,
            test=asked.test,
        )
        return pages.subsz(self._view, options)

    def _healthz(self, asked: HealthzRequest) -> Any:
        status, page = pages.healthz(
            self._view,
            HealthAsked(
                js_enabled_only=asked.js_enabled_only or asked.js_enabled,
                js_server_only=asked.js_server_only,
                account=asked.account,
                stream=asked.stream,
                consumer=asked.consumer,
                details=asked.details,
            ),
        )
        return {"status": page["status"], "status_code": status} | page

    # One account

    def _on_account(
        self, subject: str, reply: str, headers: bytes, body: bytes, client: Client | None
    ) -> None:
        *_, name, what = subject.split(".")
        system = self._view.broker.system_account
        if (name, what) == ("PING", "STATZ"):
            self._answer(
                system,
                reply,
                headers,
                body,
                AccountStatzRequest,
                lambda asked: self._account_statz(asked.accounts, asked.include_unused),
            )
            return
        shapes: dict[str, tuple[type[Filters], Page]] = {
            "SUBSZ": (SubszRequest, lambda asked: self._subsz(asked, name, listed=True)),
            "CONNZ": (ConnzRequest, lambda asked: self._connz(asked, name)),
            "LEAFZ": (Filters, lambda asked: pages.leafz(self._view)),
            "JSZ": (JszRequest, lambda asked: self._account_jsz(asked, name)),
            "INFO": (Filters, lambda asked: self._account_info(name)),
            "STATZ": (
                AccountStatzRequest,
                lambda asked: self._account_statz([name], asked.include_unused),
            ),
        }
        shape, page = shapes[what]
        self._answer(system, reply, headers, body, shape, page)

    def _account_jsz(self, asked: JszRequest, name: str) -> Any:
        found = account_jsz(self._view, name, jsz_query(asked))
        if found is None:
            raise NotThere(f'account "{name}" not found')
        return found

    def _account_info(self, name: str) -> Any:
        account = self._view.broker.accounts.get(name)
        if account is None:
            raise NotThere(f"Account {name} does not exist")
        return pages.account_detail(self._view, account)

    def _account_statz(self, names: list[str], with_unused: bool) -> Any:
        shown = pages.accstatz(self._view, with_unused, names)
        if not shown["account_statz"] and not with_unused:
            raise Silence
        return shown

    def _on_connections(
        self, subject: str, reply: str, headers: bytes, body: bytes, client: Client | None
    ) -> None:
        broker = self._view.broker
        account = broker.accounts.get(subject.split(".")[3])
        if reply and account is not None and account.connections:
            told = msgspec.json.encode(self._events.connections(account))
            broker.system_account.publish(reply, payload=told)

    # The asking user

    def _on_user_info(
        self, subject: str, reply: str, headers: bytes, body: bytes, client: Client | None
    ) -> None:
        if client is None or client.account is None or not reply:
            return
        name = client.account.name
        told: dict[str, Any] = {"user": client.user, "account": name, "account_name": name}
        permissions = self._controls.permissions_of(client)
        if permissions:
            told["permissions"] = permissions
        answer = {"server": self._identity.server(), "data": told}
        client.account.publish(reply, payload=msgspec.json.encode(answer))

    def _on_subscribers(
        self, subject: str, reply: str, headers: bytes, body: bytes, client: Client | None
    ) -> None:
        """How many of an account's subscriptions a subject reaches: for the system account."""
        words = body.decode("utf-8", "replace").split()
        if client is None or client.account is None or not words or not reply:
            return
        count = pages.subscriber_count(self._view, client.account, *words[:2])
        client.account.publish(reply, payload=str(count).encode())

    # Doing something

    def _reload(self, asked: Filters) -> None:
        if error := self._controls.try_reload():
            raise Failed(error)

    def _kick(self, asked: ClientRequest) -> None:
        client = self._view.broker.clients.get(asked.cid)
        if client is None:
            raise Failed("no such client or leafnode id")
        client.close("Kicked")

    def _send_lame_duck(self, asked: ClientRequest) -> None:
        client = self._view.broker.clients.get(asked.cid)
        if client is None:
            raise Failed("no such client id")
        if not self._controls.send_lame_duck(client):
            raise Failed(
                "client does not support Lame Duck Mode or is not ready to receive the notification"
            )


def jsz_query(asked: JszRequest) -> dict[str, str]:
    """The request as the query of the HTTP page."""
    query = {"acc": asked.account, "offset": str(asked.offset), "limit": str(asked.limit)}
    for key, name in (
        ("accounts", "accounts"),
        ("streams", "streams"),
        ("consumer", "consumers"),
        ("direct_consumer", "direct-consumers"),
        ("config", "config"),
        ("leader_only", "leader-only"),
        ("stream_leader_only", "stream-leader-only"),
        ("raft", "raft"),
    ):
        if getattr(asked, key):
            query[name] = "true"
    return query


def profilez(asked: ProfilezRequest) -> dict[str, Any]:
    """Go's profiles mean nothing here; who asks is told so in the answer's own field."""
    if not asked.name:
        return {"profile": None, "error": "Profile name not specified"}
    return {"profile": None, "error": f"Profile {asked.name!r} not found: this is not a Go program"}
