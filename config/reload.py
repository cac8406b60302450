"""What a new configuration changes, and whether a running server may take it.

One change that cannot be taken refuses all of them. `Field` in the refusals and the texts for the
log are the reference's; secrets are never shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from config.duration import format_duration
from config.options import Options, Secret


class ReloadError(Exception):
    """The new options contain a change that needs a restart."""


class Change(Struct, frozen=True):
    """One changed field (its dotted name), and what the log says once it is applied."""

    field: str
    log: str


def _go(value: Any) -> str:
    """A value as Go prints it with %v."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{_go(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, tuple):
        return "[" + " ".join(_go(entry) for entry in value) + "]"
    return str(value)


def _set(name: str, show: Callable[[Any], str] = _go) -> Callable[[Any], str]:
    return lambda value: f"Reloaded: {name} = {show(value)}"


def _named(name: str) -> Callable[[Any], str]:
    return lambda _: f"Reloaded: {name}"


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.9f}".rstrip("0").rstrip(".")


def _stalling(no_stall: bool) -> str:
    return f"Reloaded: fast producers will {'not ' if no_stall else ''}be stalled"


def _tls(tls: Any) -> str:
    return f"Reloaded: tls = {'enabled' if tls else 'disabled'}"


# Fields that may change while the server runs, in the order in which they are applied.
RELOADABLE: Final[dict[str, Callable[[Any], str]]] = {
    "client_advertise": lambda value: f"Reload: client_advertise = {value}",
    "log.trace": _set("trace"),
    "log.debug": _set("debug"),
    "log.trace_verbose": _set("trace_verbose"),
    "log.trace_headers": _set("trace_headers"),
    "log.logtime": _set("logtime"),
    "log.logtime_utc": _set("logtime_utc"),
    "max_connections": _set("max_connections"),
    "auth.users": _named("authorization users"),
    "accounts": _named("accounts"),
    "mappings": _named("accounts"),
    "auth.user": _named("authorization username"),
    "auth.password": _named("authorization password"),
    "auth.token": _named("authorization token"),
    "auth.defined": _named("authorization users"),
    "auth.default_permissions": _named("authorization users"),
    "ping_interval_ns": _set("ping_interval", format_duration),
    "max_pings_out": _set("ping_max"),
    "auth.timeout_ns": _set("authorization timeout", _seconds),
    "max_control_line_bytes": _set("max_control_line"),
    "max_payload_bytes": _set("max_payload"),
    "no_fast_producer_stall": _stalling,
    "jetstream.enabled": _named("JetStream"),
    "jetstream.max_memory_bytes": _set("JetStream max_mem_store"),
    "jetstream.max_store_bytes": _set("JetStream max_file_store"),
    "jetstream.meta_compact_entries": _set("JetStream meta_compact"),
    "jetstream.meta_compact_bytes": _set("JetStream meta_compact_size"),
    "jetstream.meta_compact_sync": _set("JetStream meta_compact_sync"),
    "pid_file": _set("pid_file"),
    "ports_file_dir": _set("ports_file_dir"),
    "log.file": _set("log_file"),
    "log.syslog": _set("syslog"),
    "log.remote_syslog": _set("remote_syslog"),
    "tls": _tls,
    "write_deadline_ns": _set("write_deadline", format_duration),
    "log.max_traced_message_bytes": _set("max_traced_msg_len"),
    "connect_error_reports": _set("connect_error_reports"),
    "reconnect_error_reports": _set("reconnect_error_reports"),
    "server_tags": _named("tags"),
    "server_metadata": _named("metadata"),
}
# Names in refusals, where they are not simply the field's words written together.
_FIELD_NAMES: Final = {
    "http.host": "HTTPHost",
    "http.port": "HTTPPort",
    "http.tls_port": "HTTPSPort",
    "http.base_path": "HTTPBasePath",
    "max_connections": "MaxConn",
    "max_subscriptions": "MaxSubs",
    "max_subject_tokens": "MaxSubTokens",
    "max_pings_out": "MaxPingsOut",
    "disable_sublist_cache": "NoSublistCache",
    "allow_non_tls": "AllowNonTLS",
    "log.file_size_limit_bytes": "LogSizeLimit",
    "log.file_max_count": "LogMaxFiles",
    "log.format": "LogFormat",
    "jetstream.store_dir": "StoreDir",
    "jetstream.sync_always": "SyncAlways",
    "jetstream.sync_interval_ns": "SyncInterval",
    "jetstream.default_domains": "JsAccDefaultDomain",
}
# Values that the reference knows as unset and shows as nothing.
_UNSET: Final = {"system_account": "$SYS", "http.base_path": "/", "write_timeout": "default"}
_UNITS: Final = ("_ns", "_bytes")
# Where a value came from is not an option.
_IGNORED: Final = ("config_file", "config_digest")
_GROUPS: Final = ("auth", "log", "http", "jetstream")


def diff(old: Options, new: Options) -> list[Change]:
    """The changes from `old` to `new`, in order; ReloadError if one needs a restart."""
    changed = {
        name: (before, after)
        for name, before in fields(old).items()
        if before != (after := field(new, name)) and name not in _IGNORED
    }
    for name, (before, after) in changed.items():
        if not _is_possible(name, before, after, old, new):
            raise ReloadError(
                f"config reload not supported for {field_name(name)}: "
                f"old={_shown(name, before)}, new={_shown(name, after)}"
            )
    if new.tls is not None:
        # The files behind the same names may hold another certificate.
        changed["tls"] = (old.tls, new.tls)
    if old.jetstream.enabled != new.jetstream.enabled:
        # The settings of a part that is switched on or off are no news of their own.
        changed = {n: change for n, change in changed.items() if not n.startswith("jetstream.")}
        changed["jetstream.enabled"] = (old.jetstream.enabled, new.jetstream.enabled)
    logs = RELOADABLE.items()
    return [Change(name, log(changed[name][1])) for name, log in logs if name in changed]


def fields(options: Options) -> dict[str, Any]:
    """All fields by their dotted names."""
    flat: dict[str, Any] = {}
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if name in _GROUPS:
            flat.update(
                {f"{name}.{inner}": getattr(value, inner) for inner in value.__struct_fields__}
            )
        else:
            flat[name] = value
    return flat


def field(options: Options, name: str) -> Any:
    group, dot, inner = name.partition(".")
    value = getattr(options, group)
    return getattr(value, inner) if dot else value


def field_name(name: str) -> str:
    """The name that the reference gives a field in its refusals."""
    if name in _FIELD_NAMES:
        return _FIELD_NAMES[name]
    for unit in _UNITS:
        name = name.removesuffix(unit)
    group, _, inner = name.rpartition(".")
    prefix = "JetStream" if group == "jetstream" else ""
    return prefix + "".join(word.capitalize() for word in inner.split("_"))


def _shown(name: str, value: Any) -> str:
    if isinstance(value, Secret):
        return str(value)
    if value == _UNSET.get(name):
        return ""
    return format_duration(value) if name.endswith("_ns") else _go(value)


def _is_possible(name: str, before: Any, after: Any, old: Options, new: Options) -> bool:
    if name == "auth.no_auth_user":
        # It may go if the user that it names goes as well.
        return bool(before) and not after and all(user.name != before for user in new.auth.users)
    if name == "system_account":
        return False
    if name.startswith("jetstream.") and not (old.jetstream.enabled and new.jetstream.enabled):
        # Settings of a part that is being switched on or off.
        return True
    if name in ("jetstream.max_memory_bytes", "jetstream.max_store_bytes"):
        # A fixed limit may grow; one found out from the machine stays as it is.
        return bool(-1 < before < after)
    return name in RELOADABLE
