"""Every option of the file: its names, what it may be, and the field of Options that it sets."""

from __future__ import annotations

import posixpath
from typing import Any, Final

from config import rooms
from config.accounts import ACCOUNTS, AUTHORIZATION, enabled_word
from config.decode import (
    ADVERTISED,
    BOOLEAN,
    BOOLEAN_MAP,
    PORT,
    TEXT,
    TEXT_MAP,
    TEXTS,
    Block,
    Decoder,
    Draft,
    InvalidError,
    Report,
    address,
    block,
    decode_block,
    duration,
    go_duration,
    integer,
    one_of,
    option,
    storage_size,
)
from config.limits import (
    MAX_CONCURRENT_IO,
    MAX_INT32,
    MAX_SUBJECT_TOKENS,
    MIN_CONCURRENT_IO,
    MIN_LAME_DUCK_NS,
    SECOND_NS,
)
from config.mappings import MAPPINGS
from config.options import Secret
from config.parser import Node
from config.tls import TLS

# --- decoders that only one option has


def _server_name(node: Node, report: Report) -> str:
    name: str = TEXT.read(node, report)
    if " " in name:
        raise InvalidError("server name cannot contain spaces")
    return name


def _tags(node: Node, report: Report) -> tuple[str, ...]:
    """Tags are compared without regard to case, and so kept in lower case."""
    tags = [tag.strip().lower() for tag in TEXTS.read(node, report)]
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def _base_path(node: Node, report: Report) -> str:
    path: str = TEXT.read(node, report)
    return posixpath.normpath("/" + path.lstrip("/"))


def _traces(field: str) -> Decoder:
    """Options that also switch trace itself."""

    def read(node: Node, report: Report) -> Draft:
        value = BOOLEAN.read(node, report)
        return {field: value, "log.trace": value}

    return Decoder(BOOLEAN.expects, read)


def _seconds_or_duration(name: str) -> Decoder:
    """A duration; a bare integer means seconds and deserves a warning."""
    exact = duration(zero_is_default=True, minimum_ns=0)

    def read(node: Node, report: Report) -> int | None:
        value = node.value
        if not isinstance(value, int) or isinstance(value, bool):
            nanoseconds: int | None = exact.read(node, report)
            return nanoseconds
        if not 0 <= value * SECOND_NS < 2**63:
            raise InvalidError
        text = f'invalid use of field "{name}": {name} should be converted to a duration'
        report.warn(node, text)
        return value * SECOND_NS or None

    return Decoder(exact.expects, read)


def _lame_duck(node: Node, _: Report) -> int:
    if type(node.value) is not str:
        raise InvalidError
    nanoseconds = go_duration(node.value)
    if nanoseconds < MIN_LAME_DUCK_NS:
        raise InvalidError("invalid lame_duck_duration, minimum is 30 seconds")
    return nanoseconds


def _grace(node: Node, _: Report) -> int | None:
    if type(node.value) is not str:
        raise InvalidError
    nanoseconds = go_duration(node.value)
    if nanoseconds < 0:
        raise InvalidError("invalid lame_duck_grace_period, needs to be positive")
    return nanoseconds or None


def _sync(node: Node, report: Report) -> Draft:
    if type(node.value) is str and node.value.lower() == "always":
        return {"jetstream.sync_always": True}
    interval_ns = _seconds_or_duration("sync_interval").read(node, report)
    if interval_ns is None:
        return {"jetstream.sync_always": True}
    return {"jetstream.sync_always": False, "jetstream.sync_interval_ns": interval_ns}


def _cipher(node: Node, report: Report) -> str:
    word = str(TEXT.read(node, report)).lower()
    if word not in ("chacha", "chachapoly", "aes"):
        raise InvalidError
    return "aes" if word == "aes" else "chacha"


def _codec(node: Node, report: Report) -> str:
    word = str(TEXT.read(node, report)).lower()
    if word not in ("zstd", "s2", "lz4"):
        raise InvalidError
    return word


def _secret(node: Node, report: Report) -> Secret:
    return Secret(TEXT.read(node, report))


def _lower(node: Node, report: Report) -> str:
    text: str = TEXT.read(node, report)
    return text.strip().lower()


def _prefixed(known: Block) -> Decoder:
    def read(node: Node, report: Report) -> Draft:
        if not isinstance(node.value, dict):
            raise InvalidError
        return decode_block(node.value, known, report)

    return Decoder("a map", read)


def _jetstream(node: Node, report: Report) -> Draft:
    if not isinstance(node.value, dict):
        return {"jetstream.enabled": enabled_word(node)}
    draft = decode_block(node.value, JETSTREAM, report)
    return {"jetstream.enabled": True, **draft}


# --- the tables

_SIZE: Final = storage_size()
_POSITIVE_SIZE: Final = storage_size(minimum=0)
_COUNT: Final = integer(0)
_DURATION: Final = duration(minimum_ns=0)
_SECRET: Final = Decoder(TEXT.expects, _secret)

JETSTREAM_BATCH: Final = block(
    option("max_inflight_per_stream", to="jetstream.max_batch_inflight_per_stream", by=_COUNT),
    option("max_inflight_total", to="jetstream.max_batch_inflight_total", by=_COUNT),
    option("max_msgs", to="jetstream.max_batch_messages", by=_COUNT),
    option("timeout", to="jetstream.max_batch_timeout_ns", by=_DURATION),
)
JETSTREAM_LIMITS: Final = block(
    option("max_ack_pending", to="jetstream.max_ack_pending", by=integer()),
    option("max_ha_assets", to="jetstream.max_ha_assets", by=integer()),
    option("max_request_batch", to="jetstream.max_request_batch", by=integer()),
    option("duplicate_window", to="jetstream.max_duplicate_window_ns", by=_DURATION),
    option("batch", to="", by=_prefixed(JETSTREAM_BATCH)),
)
JETSTREAM: Final = block(
    option("enabled", "enable", to="jetstream.enabled", by=BOOLEAN),
    option("store_dir", "storedir", "store", to="jetstream.store_dir", by=TEXT),
    option("strict", to="jetstream.strict", by=BOOLEAN),
    option("sync_interval", "sync", to="", by=Decoder('"always" or a duration', _sync)),
    option(
        "max_memory_store",
        "max_mem_store",
        "max_mem",
        to="jetstream.max_memory_bytes",
        by=_SIZE,
    ),
    option("max_file_store", "max_file", to="jetstream.max_store_bytes", by=_SIZE),
    option("domain", to="jetstream.domain", by=TEXT),
    option("unique_tag", to="jetstream.unique_tag", by=Decoder(TEXT.expects, _lower)),
    option("extension_hint", to="jetstream.extension_hint", by=TEXT),
    option("encryption_key", "key", "ek", to="jetstream.encryption_key", by=_SECRET, secret=True),
    option(
        "prev_encryption_key",
        "prev_key",
        "prev_ek",
        to="jetstream.previous_encryption_key",
        by=_SECRET,
        secret=True,
    ),
    option("cipher", to="jetstream.cipher", by=Decoder('"chacha" or "aes"', _cipher)),
    option(
        "block_compression",
        to="jetstream.block_compression",
        by=Decoder('"zstd", "s2" or "lz4"', _codec),
    ),
    option("limits", to="", by=_prefixed(JETSTREAM_LIMITS)),
    option("tpm", to="", by=rooms.later("tpm", rooms.TPM)),
    option(
        "max_outstanding_catchup", to="jetstream.max_outstanding_catchup_bytes", by=_POSITIVE_SIZE
    ),
    option("max_buffered_size", to="jetstream.max_buffered_bytes", by=_POSITIVE_SIZE),
    option("max_buffered_msgs", to="jetstream.max_buffered_messages", by=_COUNT),
    option("request_queue_limit", to="jetstream.request_queue_limit", by=integer(floor=0)),
    option("info_queue_limit", to="jetstream.info_queue_limit", by=integer(floor=0)),
    option("meta_compact", to="jetstream.meta_compact_entries", by=_COUNT),
    option("meta_compact_size", to="jetstream.meta_compact_bytes", by=_POSITIVE_SIZE),
    option("meta_compact_sync", to="jetstream.meta_compact_sync", by=BOOLEAN),
    option(
        "max_concurrent_io",
        to="jetstream.max_concurrent_io",
        by=integer(MIN_CONCURRENT_IO, MAX_CONCURRENT_IO),
    ),
)

_SERVER: Final = (
    option("server_name", to="server_name", by=Decoder(TEXT.expects, _server_name)),
    option("server_tags", to="server_tags", by=Decoder(TEXTS.expects, _tags)),
    option("server_metadata", to="server_metadata", by=TEXT_MAP),
    option("listen", to="", by=address("host", "port")),
    option("host", "net", to="host", by=TEXT),
    option("port", to="port", by=PORT),
    option("client_advertise", to="client_advertise", by=ADVERTISED),
    option("tls", to="tls", by=TLS),
    option("allow_non_tls", to="allow_non_tls", by=BOOLEAN),
)
_CONNECTIONS: Final = (
    option(
        "max_control_line",
        to="max_control_line_bytes",
        by=integer(0, MAX_INT32, zero_is_default=True),
    ),
    option("max_payload", to="max_payload_bytes", by=integer(0, MAX_INT32, zero_is_default=True)),
    option("max_pending", to="max_pending_bytes", by=integer(0, zero_is_default=True)),
    option("max_connections", "max_conn", to="max_connections", by=integer(floor=0)),
    option("max_subscriptions", "max_subs", to="max_subscriptions", by=integer(floor=0)),
    option(
        "max_subscription_tokens",
        "max_sub_tokens",
        to="max_subject_tokens",
        by=integer(1, MAX_SUBJECT_TOKENS),
    ),
    option("max_closed_clients", to="max_closed_clients", by=integer(0, zero_is_default=True)),
    option("ping_interval", to="ping_interval_ns", by=_seconds_or_duration("ping_interval")),
    option("ping_max", to="max_pings_out", by=integer(0, zero_is_default=True)),
    option("write_deadline", to="write_deadline_ns", by=_seconds_or_duration("write_deadline")),
    option("write_timeout", to="write_timeout", by=one_of("default", "close", "retry")),
    option("no_fast_producer_stall", to="no_fast_producer_stall", by=BOOLEAN),
    option("no_header_support", to="no_header_support", by=BOOLEAN),
    option("disable_sublist_cache", "no_sublist_cache", to="disable_sublist_cache", by=BOOLEAN),
    option("proxy_protocol", to="proxy_protocol", by=BOOLEAN),
)
_SECURITY: Final = (
    option("authorization", to="", by=AUTHORIZATION),
    option("accounts", to="", by=ACCOUNTS),
    option("mappings", "maps", to="mappings", by=MAPPINGS),
    option("no_auth_user", to="auth.no_auth_user", by=TEXT),
    option("system_account", "system", to="system_account", by=TEXT),
    option("no_system_account", "no_system", "no_sys_acc", to="no_system_account", by=BOOLEAN),
)
_OPERATION: Final = (
    option("debug", to="log.debug", by=BOOLEAN),
    option("trace", to="log.trace", by=BOOLEAN),
    option("trace_verbose", to="", by=_traces("log.trace_verbose")),
    option("trace_headers", to="", by=_traces("log.trace_headers")),
    option("logtime", to="log.logtime", by=BOOLEAN),
    option("logtime_utc", to="log.logtime_utc", by=BOOLEAN),
    option("log_format", to="log.format", by=one_of("text", "json")),
    option("log_file", "logfile", to="log.file", by=TEXT),
    option(
        "log_size_limit", "logfile_size_limit", to="log.file_size_limit_bytes", by=integer(floor=0)
    ),
    option("log_max_num", "logfile_max_num", to="log.file_max_count", by=integer(floor=0)),
    option("syslog", to="log.syslog", by=BOOLEAN),
    option("remote_syslog", to="log.remote_syslog", by=TEXT),
    option("max_traced_msg_len", to="log.max_traced_message_bytes", by=integer(floor=0)),
    option("http", to="", by=address("http.host", "http.port")),
    option("https", to="", by=address("http.host", "http.tls_port")),
    option("http_port", "monitor_port", to="http.port", by=PORT),
    option("https_port", to="http.tls_port", by=PORT),
    option("http_base_path", to="http.base_path", by=Decoder(TEXT.expects, _base_path)),
    option("pid_file", "pidfile", to="pid_file", by=TEXT),
    option("ports_file_dir", to="ports_file_dir", by=TEXT),
    option(
        "lame_duck_duration",
        to="lame_duck_duration_ns",
        by=Decoder('a duration of at least "30s"', _lame_duck),
    ),
    option(
        "lame_duck_grace_period",
        to="lame_duck_grace_period_ns",
        by=Decoder('a duration such as "10s"', _grace),
    ),
    option("connect_error_reports", to="connect_error_reports", by=integer(zero_is_default=True)),
    option(
        "reconnect_error_reports", to="reconnect_error_reports", by=integer(zero_is_default=True)
    ),
    option("feature_flags", to="feature_flags", by=BOOLEAN_MAP),
    option("prof_port", to="", by=rooms.later("prof_port")),
    option("prof_block_rate", to="", by=rooms.later("prof_block_rate")),
)
_STREAMS: Final = (
    option("jetstream", to="", by=Decoder('a boolean, "enabled" or a map', _jetstream)),
    option("store_dir", "storedir", to="store_dir", by=TEXT),
    option("default_js_domain", to="jetstream.default_domains", by=TEXT_MAP),
)
_LATER: Final[tuple[tuple[tuple[str, ...], rooms.Keys], ...]] = (
    (("cluster",), rooms.CLUSTER),
    (("gateway",), rooms.GATEWAY),
    (("leafnodes", "leaf"), rooms.LEAFNODES),
    (("websocket", "ws"), rooms.WEBSOCKET),
    (("mqtt",), rooms.MQTT),
    (
        ("operator", "operators", "root", "roots", "root_operator", "root_operators"),
        rooms.ANYTHING,
    ),
    (("trusted_keys", "trusted"), rooms.ANYTHING),
    (("resolver", "account_resolver", "accounts_resolver"), rooms.RESOLVER),
    (("resolver_tls",), rooms.TLS),
    (("resolver_preload",), rooms.ANYTHING),
    (("resolver_pinned_accounts",), rooms.ANYTHING),
    (("default_sentinel",), rooms.ANYTHING),
    (("ocsp",), rooms.OCSP),
    (("ocsp_cache",), rooms.OCSP_CACHE),
    (("proxies",), rooms.PROXIES),
)
GROUPS: Final[dict[str, tuple[Any, ...]]] = {
    "The server": _SERVER,
    "Connections": _CONNECTIONS,
    "Security": _SECURITY,
    "Operation": _OPERATION,
    "Streams": _STREAMS,
    "Not yet": tuple(
        option(*names, to="", by=rooms.later(names[0], below)) for names, below in _LATER
    ),
}
TOP: Final = block(*(entry for group in GROUPS.values() for entry in group))
