"""Who may connect, as the options say: an immutable picture, made anew at each reload."""

from __future__ import annotations

from config.options import GLOBAL_ACCOUNT, AuthOptions, Options, PermissionOptions, User
from server.auth.passwords import is_bcrypt
from server.auth.permissions import compile_permissions
from server.core._permissions import Permissions
from server.core.connect import ConnectOptions

CONNECTION_TYPES = {"nats": "STANDARD", "websocket": "WEBSOCKET", "mqtt": "MQTT"}
"""From a client's type to the word of `allowed_connection_types`."""


class Login:
    """One way in: a user, an nkey, the token, or nobody in particular (`kind` is then `open`)."""

    __slots__ = ("account", "connection_types", "kind", "name", "permissions", "raw", "secret")

    def __init__(
        self,
        kind: str,
        name: str,
        secret: str = "",
        account: str = GLOBAL_ACCOUNT,
        raw: PermissionOptions | None = None,
        connection_types: frozenset[str] = frozenset(),
    ) -> None:
        self.kind = kind
        self.name = name
        self.secret = secret
        self.account = account
        self.raw = raw
        self.permissions: Permissions | None = compile_permissions(raw)
        self.connection_types = connection_types

    def allows(self, client_type: str) -> bool:
        wanted = CONNECTION_TYPES.get(client_type, "")
        return not self.connection_types or wanted in self.connection_types


class Directory:
    """Finds the login that a CONNECT claims. Proving the claim is for the authenticator.

    With users in the system account alone and no `authorization` block, everybody else still
    gets into `$G` without credentials, although INFO says that authentication is required.
    """

    def __init__(self, options: Options) -> None:
        auth = options.auth
        defaults = {account.name: account.default_permissions for account in options.accounts}
        defaults[GLOBAL_ACCOUNT] = auth.default_permissions
        logins = [login_of(user, defaults.get(user.account)) for user in auth.users]
        self.users = {login.name: login for login in logins if login.kind == "user"}
        self.nkeys = {login.name: login for login in logins if login.kind == "nkey"}
        self.single = single_login(auth)
        self.open_login = Login("open", "")
        self.required = bool(logins) or self.single is not None
        self.verify_and_map = options.tls is not None and options.tls.verify_and_map
        self.no_auth_user = auth.no_auth_user
        self.open_beside_system = (
            bool(logins)
            and not auth.no_auth_user
            and not auth.defined
            and all(login.account == options.system_account for login in logins)
            and all(account.name == options.system_account for account in options.accounts)
        )

    @property
    def info_auth_required(self) -> bool:
        return self.required and not self.no_auth_user

    @property
    def nonce_required(self) -> bool:
        return bool(self.nkeys)

    @property
    def maps_certificates(self) -> bool:
        """Certificates name the users: what a CONNECT says of itself is not asked."""
        return self.verify_and_map and bool(self.users)

    def claims_nkey(self, given: ConnectOptions) -> bool:
        """Whether one of our nkeys has to prove this CONNECT, whatever a certificate says."""
        if not self.nkeys:
            return False
        return bool(given.nkey) or (
            self.no_auth_user in self.nkeys and not self.has_credentials(given)
        )

    def has_plain_passwords(self) -> bool:
        secrets = [login.secret for login in self.users.values() if not self.is_certificate(login)]
        if self.single is not None and self.single.kind == "user":
            secrets.append(self.single.secret)
        return any(not is_bcrypt(secret) for secret in secrets)

    def is_certificate(self, login: Login) -> bool:
        """A user without a password, where certificates name users: no password opens it."""
        return self.verify_and_map and not login.secret and login.allows("nats")

    def anonymous(self) -> Login | None:
        """The login for a CONNECT without any credentials, if there is one."""
        if self.no_auth_user:
            return self.users.get(self.no_auth_user) or self.nkeys.get(self.no_auth_user)
        return self.open_login if self.open_beside_system or not self.required else None

    def has_credentials(self, given: ConnectOptions) -> bool:
        nkey = given.nkey and self.nkeys
        return bool(given.user or given.password or given.auth_token or nkey)

    def claimed(self, given: ConnectOptions, client_type: str) -> Login | None:
        """The login that these credentials claim; None when there is no such login."""
        if given.nkey and self.nkeys:
            login = self.nkeys.get(given.nkey)
        elif given.user and self.users:
            login = self.users.get(given.user)
        elif self.single is not None:
            login = self.single if self._fits_single(given) else None
        else:
            login = None
        return login if login is not None and login.allows(client_type) else None

    def _fits_single(self, given: ConnectOptions) -> bool:
        assert self.single is not None
        return self.single.kind == "token" or self.single.name == given.user

    def same_login(self, old: Login) -> Login | None:
        """What an earlier directory's login is called here, whatever its secret is now."""
        if old.kind == "user" and self.users:
            return self.users.get(old.name)
        if old.kind == "nkey":
            return self.nkeys.get(old.name)
        if old.kind == "open":
            return self.open_login if self.anonymous() is self.open_login else None
        single = self.single
        return single if single and (single.kind, single.name) == (old.kind, old.name) else None


def login_of(user: User, default: PermissionOptions | None) -> Login:
    kind, name = ("nkey", user.nkey) if user.nkey else ("user", user.name)
    return Login(
        kind,
        name,
        user.password.reveal(),
        user.account,
        user.permissions or default,
        user.allowed_connection_types,
    )


def single_login(auth: AuthOptions) -> Login | None:
    """The one token, or the one user and password, of an `authorization` block or of the flags."""
    if auth.token:
        return Login("token", "", auth.token.reveal())
    if auth.user:
        return Login("user", auth.user, auth.password.reveal())
    return None
