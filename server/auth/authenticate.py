"""Decides about a CONNECT: who is it, is it proved, what may it do.

All decisions but a bcrypt check are made at once; a bcrypt check is made by a `PasswordPool` while
the client waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from server.auth.directory import Directory, Login
from server.auth.passwords import PasswordPool, is_bcrypt, plain_equal
from server.core._account import Account
from server.core._client import Client
from server.core.connect import ConnectOptions

NOT_AUTHENTICATED = "authentication error"


class Log(Protocol):
    def error(self, text: str, conn: str = "") -> None: ...

    def warn(self, text: str, conn: str = "") -> None: ...

    def debug(self, text: str, conn: str = "") -> None: ...


class Authenticator:
    """Answers `on_connect` with `client.accept` or `client.reject`, now or later."""

    def __init__(
        self,
        directory: Directory,
        pool: PasswordPool,
        log: Log,
        find_account: Callable[[str], Account],
    ) -> None:
        self.directory = directory
        self._pool = pool
        self._log = log
        self._find_account = find_account
        self.on_admitted: Callable[[Client], None] = lambda client: None

    def on_connect(self, client: Client) -> None:
        given = client.options
        if not self.directory.required:
            self.admit(client, self.directory.open_login)
            return
        if self.directory.maps_certificates and not self.directory.claims_nkey(given):
            self._by_certificate(client)
            return
        if not self.directory.has_credentials(given):
            if not self._admit_anonymous(client):
                self.refuse(client)
            return
        login = self.directory.claimed(given, client.type)
        if login is None:
            self.refuse(client)
        else:
            self._prove(client, login)

    def on_missing_connect(self, client: Client) -> bool:
        """Signs in who begins without a CONNECT, where that is allowed.

        Where certificates name users, nobody gets in by saying less; and nobody becomes an nkey
        without a word.
        """
        login = self.directory.anonymous()
        if self.directory.maps_certificates or login is None or login.kind == "nkey":
            return False
        return self._admit_anonymous(client)

    def _admit_anonymous(self, client: Client) -> bool:
        """Signs in who gives no credentials, where that is allowed."""
        login = self.directory.anonymous()
        if login is None or not login.allows(client.type):
            return False
        return self.admit(client, login)

    def _by_certificate(self, client: Client) -> None:
        name = self._mapped_name(client)
        if not name:
            self.refuse(client)
            return
        if client.options.user:
            self._log.warn(
                f'User "{client.options.user}" found in connect proto, but user required from cert'
            )
        # A certificate does not stand for the password of a user that has one.
        self._compare(client, self.directory.users[name], client.options.password)

    def _mapped_name(self, client: Client) -> str:
        """The user that the client's certificate names; empty when it names none."""
        from server.auth.certificates import find_user

        users = self.directory.users
        candidates = {name for name, login in users.items() if login.allows(client.type)}
        name, how = find_user(client.tls, candidates)
        self._log.debug(how, client.label)
        return name

    def _prove(self, client: Client, login: Login) -> None:
        given = client.options
        if login.kind == "nkey":
            if login.name == self.directory.no_auth_user or self._signed(client):
                self.admit(client, login)
            else:
                self.refuse(client)
        elif self.directory.is_certificate(login):
            self._log.debug(f'User "{login.name}" requires a client certificate', client.label)
            self.refuse(client)
        else:
            text = given.auth_token if login.kind == "token" else given.password
            self._compare(client, login, text)

    def _signed(self, client: Client) -> bool:
        from server.auth.nkeys import Kind, decode_signature, verify

        given = client.options
        if not given.sig:
            self._log.debug("Signature missing", client.label)
            return False
        signature = decode_signature(given.sig)
        if signature is None:
            self._log.debug("Signature not valid base64", client.label)
            return False
        if not verify(Kind.USER, given.nkey, client.nonce, signature):
            self._log.debug("Signature not verified", client.label)
            return False
        return True

    def _compare(self, client: Client, login: Login, text: str) -> None:
        if not is_bcrypt(login.secret):
            if plain_equal(login.secret, text):
                self.admit(client, login)
            else:
                self.refuse(client)
            return

        def answer(equal: bool) -> None:
            if client.closed:
                return
            # A reload may have changed the login while the check was waiting.
            current = self.directory.same_login(login)
            if equal and current is not None and current.secret == login.secret:
                self.admit(client, current)
            else:
                self.refuse(client)

        if not self._pool.check(login.secret, text, lambda: not client.closed, answer):
            self._log.warn("Too many logins are waiting for their password check", client.label)
            client.reject("Authentication Timeout", "Authentication Timeout")

    def recheck(self, client: Client) -> None:
        """After a reload: whether a client that is signed in still may be, and what it may do."""
        old = client.auth
        if not isinstance(old, Login):
            return
        login = self.directory.same_login(old)
        if login is None and old.kind != "user":
            self.refuse(client)
        elif login is None or login.account != old.account:
            client.close("Client Closed")
        elif not login.allows(client.type) or not self._still_mapped(client, login):
            self.refuse(client)
        elif login.secret != old.secret:
            self._recheck_password(client, login)
        else:
            self._move(client, login)

    def _still_mapped(self, client: Client, login: Login) -> bool:
        """False for a user that certificates name now, and this client's names another or none."""
        if login.kind != "user" or not self.directory.maps_certificates:
            return True
        return self._mapped_name(client) == login.name

    def _recheck_password(self, client: Client, login: Login) -> None:
        """Another secret in the configuration may still be the same password."""
        given = client.options
        text = given.auth_token if login.kind == "token" else given.password
        if not is_bcrypt(login.secret):
            if plain_equal(login.secret, text):
                self._move(client, login)
            else:
                self.refuse(client)
            return

        def answer(equal: bool) -> None:
            if equal and not client.closed:
                self._move(client, login)
            elif not client.closed:
                self.refuse(client)

        if not self._pool.check(login.secret, text, lambda: not client.closed, answer):
            self.refuse(client)

    def _move(self, client: Client, login: Login) -> None:
        old = client.auth
        client.auth = login
        if isinstance(old, Login) and old.raw != login.raw:
            client.set_permissions(login.permissions)

    def admit(self, client: Client, login: Login) -> bool:
        account = self._find_account(login.account)
        named = login.kind in ("user", "nkey")
        user = login.name if named else client.options.claimed_user
        client.user_label = user_label(login, client.options)
        # The reference has an issuer for nkeys that no JWT came with: the account.
        client.issuer_key = account.name if login.kind == "nkey" else ""
        admitted = client.accept(account, user=user, permissions=login.permissions, auth=login)
        if admitted:
            self.on_admitted(client)
        return admitted

    def refuse(self, client: Client) -> None:
        who = spoken_user(client.options)
        self._log.error(f"{NOT_AUTHENTICATED} - {who}" if who else NOT_AUTHENTICATED, client.label)
        client.reject()


def user_label(login: Login, given: ConnectOptions) -> str:
    """Who it is, as log lines of the connection name it."""
    if login.kind in ("user", "nkey"):
        return f"{login.kind}:{login.name}"
    if given.nkey:
        return f"nkey:{given.nkey}"
    if given.user:
        return f"user:{given.user}"
    return "token" if given.auth_token else ""


def spoken_user(given: ConnectOptions) -> str:
    if given.nkey:
        return f'Nkey "{given.nkey}"'
    if given.user:
        return f'User "{given.user}"'
    return 'Token "[REDACTED]"' if given.auth_token else ""
