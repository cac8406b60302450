"""What the data path asks of the server: INFO texts, logins, the log, the list of the gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from config.options import Options
from server.auth.authenticate import Authenticator
from server.clock import Random
from server.core.tlsstate import TlsState
from server.net.info import NONCE_BYTES, Info, encode_info, nonce_text
from server.ops.logging import Level, Logger

if TYPE_CHECKING:
    from server.core._client import Client
    from server.core.msgtrace import MessageTrace
    from server.ops.closed import ClosedConnections
    from server.ops.events import ServerEvents
    from server.ops.tracing import TraceEvents

LIMITED_LEVELS = {"error": Level.ERROR, "warn": Level.WARN}


class ServerHooks:
    """Satisfies `server.core.hooks.Hooks`. `info` is what all connections are told."""

    def __init__(
        self,
        options: Options,
        info: Info,
        authenticator: Authenticator,
        logger: Logger,
        random: Random,
        closed: ClosedConnections,
    ) -> None:
        self.info = info
        self.authenticator = authenticator
        self.closed = closed
        self.events: ServerEvents | None = None
        self.traces: TraceEvents | None = None
        # Clients that understand an INFO at any time and have had their second one.
        self.informed: set[Client] = set()
        self._logger = logger
        self._random = random
        self.apply(options)

    def apply(self, options: Options) -> None:
        """Takes from the options what INFO tells; called again after a reload."""
        tls = options.tls
        self._proxied = options.proxy_protocol
        self._trace = options.log.trace
        self._trace_system = options.log.trace_verbose
        self._system_account = options.system_account
        self.info = replace(
            self.info,
            headers=not options.no_header_support,
            max_payload=options.max_payload_bytes,
            auth_required=self.authenticator.directory.required,
            tls_required=tls is not None and not options.allow_non_tls,
            tls_available=tls is not None and options.allow_non_tls,
            tls_verify=tls is not None and (tls.verify or tls.verify_and_map),
        )

    # INFO

    def on_accept(self, client: Client) -> bytes | None:
        if self.authenticator.directory.nonce_required:
            client.nonce = nonce_text(self._random.token_bytes(NONCE_BYTES)).encode()
        # With the handshake first, INFO waits for it.
        if isinstance(client.tls, TlsState):
            return None
        return self.first_info(client, knows_peer=not self._proxied)

    def first_info(self, client: Client, *, knows_peer: bool = True) -> bytes:
        """Who the peer behind a proxy is, is only known later."""
        return encode_info(
            replace(
                self.info,
                client_id=client.cid,
                client_ip=client.ip if knows_peer else "",
                nonce=client.nonce.decode(),
                auth_required=self.authenticator.directory.info_auth_required,
                tls_required=self.info.tls_required or isinstance(client.tls, TlsState),
            )
        )

    def later_info(self, client: Client, *, connect_info: bool = False) -> bytes:
        """An INFO for a client that is signed in."""
        account = client.account.name if connect_info and client.account is not None else ""
        return encode_info(
            replace(
                self.info,
                client_id=client.cid,
                client_ip=client.ip,
                max_payload=client.max_payload,
                connect_info=connect_info,
                remote_account=account,
                acc_is_sys=bool(account) and account == self._system_account,
            )
        )

    def on_first_pong(self, client: Client) -> bytes | None:
        self.informed.add(client)
        return self.later_info(client, connect_info=True)

    def send_info_to_all(self) -> None:
        for client in list(self.informed):
            client.send_info(self.later_info(client))

    def send_lame_duck(self, client: Client) -> None:
        """As if the server went, for this client alone."""
        kept, self.info = self.info, replace(self.info, ldm=True)
        client.send_info(self.later_info(client))
        self.info = kept

    # Logins

    def on_connect(self, client: Client) -> None:
        self.authenticator.on_connect(client)
        self.set_trace(client)

    def on_missing_connect(self, client: Client) -> bool:
        return self.authenticator.on_missing_connect(client)

    def set_trace(self, client: Client) -> None:
        """What happens in the system account is traced only when that is asked for."""
        account = client.account
        is_system = account is not None and account.name == self._system_account
        client.trace = self._trace and (self._trace_system or not is_system)

    # The end, and the log

    def on_closed(self, client: Client, reason: str) -> None:
        self.informed.discard(client)
        self.closed.add(client)
        if self.events is not None:
            self.events.disconnected(client, reason)

    def on_traced(self, trace: MessageTrace) -> None:
        if self.traces is not None:
            self.traces.publish(trace)

    def log(self, level: str, text: str, client: Client | None = None) -> None:
        # Most of what comes here is for a level that is off.
        if level == "debug" and not self._logger.debug_on:
            return
        label = client.label if client is not None else ""
        if level == "trace":
            self._logger.trace(text, label)
        elif level == "debug":
            self._logger.debug(text, label)
        elif level in LIMITED_LEVELS:
            self._logger.limited(LIMITED_LEVELS[level], text, label)
        else:
            self._logger.notice(text, label)
