"""Applies a changed configuration to a running server.

First everything that can fail: the file is read and judged, certificates are loaded, permissions
compiled, the new log is opened. Only then is anything changed; from there on nothing is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from config.options import LogOptions, Options
from config.reload import ReloadError, diff
from server.auth.directory import Directory
from server.core.tlsstate import TlsState
from server.net.clients import tls_settings
from server.net.tls import TlsError, monitoring_context
from server.ops.openlog import LogOpenError, open_sink
from server.ops.pidfile import write_pid_file

if TYPE_CHECKING:
    from server.app import App
    from server.core._client import Client

ACCESS_FIELDS = frozenset(
    {
        "accounts",
        "auth.users",
        "auth.user",
        "auth.password",
        "auth.token",
        "auth.defined",
        "auth.default_permissions",
        "tls",
    }
)


def reload(app: App, new: Options) -> None:
    """Raises ReloadError, and then nothing has changed."""
    old = app.options
    changes = diff(old, new)
    changed = {change.field for change in changes}
    try:
        settings, monitoring = tls_settings(new), monitoring_context(new)
        directory = Directory(new)
        log = open_sink(new.log, app.clock, app.program) if log_moved(old.log, new.log) else None
    except (TlsError, LogOpenError, ValueError) as error:
        raise ReloadError(str(error)) from error
    app.options = new
    if log is not None:
        app.logger.replace(*log, debug=new.log.debug, trace=new.log.trace)
    app.logger.debug_on, app.logger.trace_on = new.log.debug, new.log.trace
    app.apply(directory)
    # A certificate may have been renewed in its file: that is no change of the options.
    app.replace_tls(settings, monitoring)
    for change in changes:
        app.logger.notice(change.log)
    recheck_clients(app, changed, old)
    move_files(app, changed)
    app.config_loaded_wall_ns = app.wall_ns()


def log_moved(old: LogOptions, new: LogOptions) -> bool:
    """Whether lines will look different or go elsewhere."""
    return any(
        getattr(old, name) != getattr(new, name)
        for name in ("file", "syslog", "remote_syslog", "logtime", "logtime_utc")
    )


def recheck_clients(app: App, changed: set[str], old: Options) -> None:
    """Closes whoever may no longer be connected and adjusts the others."""
    clients = list(app.broker.clients.values())
    if changed & ACCESS_FIELDS:
        for client in clients:
            if not is_pinned(app, client):
                client.close("TLS Handshake Failure")
            else:
                app.authenticator.recheck(client)
    if "log.trace" in changed or "log.trace_verbose" in changed:
        for client in clients:
            app.hooks.set_trace(client)
    if app.options.max_connections < old.max_connections:
        close_server_surplus(app)
    close_account_surplus(app)
    forget_accounts(app, old)


def is_pinned(app: App, client: Client) -> bool:
    tls = app.options.tls
    pinned = tls.pinned_certs if tls is not None else frozenset()
    return (
        not pinned or not isinstance(client.tls, TlsState) or client.tls.peer_key_sha256 in pinned
    )


def close_server_surplus(app: App) -> None:
    surplus = surplus_of(app, list(app.broker.clients.values()), app.options.max_connections)
    for client in surplus:
        app.logger.error("maximum connections exceeded", client.label)
        client.close("Maximum Connections Exceeded", "maximum connections exceeded")
    if surplus:
        app.logger.notice(f"Closed {len(surplus)} connections to fall within max_connections")


def close_account_surplus(app: App) -> None:
    error = "maximum account active connections exceeded"
    for account in app.broker.accounts.values():
        if 0 <= account.max_connections < account.connections:
            members = [c for c in app.broker.clients.values() if c.account is account]
            for client in surplus_of(app, members, account.max_connections):
                app.logger.error(error, client.label)
                client.close("Maximum Account Connections Exceeded", error)


def surplus_of(app: App, clients: list[Client], limit: int) -> list[Client]:
    """Random ones, so that no one application loses all of its connections."""
    count = max(0, len(clients) - limit)
    return [clients.pop(app.random.below(len(clients))) for _ in range(count)]


def forget_accounts(app: App, old: Options) -> None:
    """Accounts that the file no longer has; their clients have been closed."""
    kept = {account.name for account in app.options.accounts} | {app.options.system_account}
    for gone in {account.name for account in old.accounts} - kept:
        app.forget_account(gone)


def move_files(app: App, changed: set[str]) -> None:
    if "pid_file" in changed and app.options.pid_file:
        try:
            write_pid_file(app.options.pid_file)
        except OSError as error:
            app.logger.error(f"Failed to write pidfile: {error}")
    if "ports_file_dir" in changed:
        app.remove_ports_file()
        app.write_ports_file()
