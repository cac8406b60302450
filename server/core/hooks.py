"""What the data path asks of the rest of the server: rare events only, never one per message.

A `Broker` calls these on the loop's thread. A hook may call back into the `Client` it is given
(send, close, accept, reject); it must not block. An exception that leaves a hook is logged through
`log("error", ...)` and closes that client with the reason "Internal Client".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.core._client import Client
    from server.core.msgtrace import MessageTrace


class Hooks(Protocol):
    """The server around the data path. `server.core.hooks.NoHooks` is a complete small one."""

    def on_accept(self, client: Client) -> bytes | None:
        """Return the INFO JSON (without the verb and CRLF) for a new connection.

        Called once, before anything is read. None sends no INFO (TLS handshake first; send it
        later with `client.send_info`). May set `client.nonce`. `client.auth_required` starts as
        `broker.auth_required` and may be changed here.
        """

    def on_connect(self, client: Client) -> None:
        """Decide about a CONNECT; what the client sent is `client.options`.

        The client is paused (nothing more of it is parsed) until `client.accept(...)` or
        `client.reject(...)` is called, here or any time later on the loop. Called for every
        CONNECT, also when no authentication is configured, and again for a second one.
        """

    def on_missing_connect(self, client: Client) -> bool:
        """The first verb of a client that must authenticate is not CONNECT.

        True: the hook called `client.accept(...)` (`no_auth_user`) and the verb is processed.
        False: the client gets `-ERR 'Authorization Violation'` and is closed.
        """

    def on_first_pong(self, client: Client) -> bytes | None:
        """Return the second INFO's JSON (`connect_info`), or None for none.

        Called after the PONG that answers the client's first PING behind its CONNECT, only for
        clients with `protocol` 1 or more.
        """

    def on_closed(self, client: Client, reason: str) -> None:
        """The connection is gone from every table; counters and `client` stay readable."""

    def on_traced(self, trace: MessageTrace) -> None:
        """A traced message has gone its way: publish what was noted."""

    def log(self, level: str, text: str, client: Client | None = None) -> None:
        """One log line. `level`: "trace", "debug", "info", "warn", "error".

        With a client, `text` is what follows `<client label> - `. Trace lines come only while
        `client.trace` (or `broker.trace` when it was accepted) is on.
        """


class NoHooks:
    """Accepts everybody into `$G` and keeps quiet: tests, benches, fuzzing."""

    def on_accept(self, client: Client) -> bytes | None:
        return client.broker.info_json(client)

    def on_connect(self, client: Client) -> None:
        client.accept(client.broker.default_account)

    def on_missing_connect(self, client: Client) -> bool:
        return False

    def on_first_pong(self, client: Client) -> bytes | None:
        return None

    def on_closed(self, client: Client, reason: str) -> None:
        pass

    def on_traced(self, trace: MessageTrace) -> None:
        pass

    def log(self, level: str, text: str, client: Client | None = None) -> None:
        pass
