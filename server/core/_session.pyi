from server.core._account import Account
from server.core._peer import Peer
from server.core._permissions import Permissions

class Session(Peer):
    nonce: bytes
    connected: bool  # a CONNECT was received
    auth_required: bool  # still to authenticate
    max_payload: int  # effective for this connection
    max_subs: int  # effective, 0: no limit

    def set_limits(self) -> None:
        """Payload and subscription limits: the smallest of server, account and user."""
    def apply_limits(self) -> None:
        """The broker's limits have changed."""

    # authentication (see Hooks.on_connect)
    def accept(
        self,
        account: Account,
        user: str = "",
        permissions: Permissions | None = None,
        max_payload: int = -1,
        max_subs: int = -1,
        auth: object | None = None,
    ) -> bool:
        """Sign the client in and go on parsing. -1 keeps the broker's limit.

        False when it was refused by the account's connection limit (the client is closed).
        """
    def reject(
        self, error: str = "Authorization Violation", reason: str = "Authentication Failure"
    ) -> None: ...
    def postpone_auth_timeout(self, by_ns: int = 0) -> None:
        """Start the authentication timeout anew, that much later, if it is running (TLS)."""
    def set_permissions(self, permissions: Permissions | None) -> None:
        """Replace the permissions of a live client (reload); subscriptions that are no longer
        allowed are removed with their -ERR (1-100)."""
