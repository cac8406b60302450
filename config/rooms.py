"""Options of parts that do not exist yet.

They are known, so that a misspelt key inside them is reported as such, and refused by name: a
server that silently ignores its cluster or its operator is worse than one that does not start.
A value that switches the part off (`false`, 0, an empty text, array or map) is accepted.
"""

from __future__ import annotations

from typing import Final

from config.decode import Decoder, Draft, InvalidError, Report
from config.parser import Node

# The keys of a block, each with the block below it; `*` stands for any name, an empty dict for a
# value whose inside nobody checks.
Keys = dict[str, "Keys"]

ANYTHING: Final[Keys] = {"*": {}}


def keys(*names: str, **below: Keys) -> Keys:
    return {**dict.fromkeys(names, ANYTHING), **below}


TLS: Final = keys(
    *("cert_file", "key_file", "ca_file", "insecure", "verify", "verify_and_map", "timeout"),
    *("verify_cert_and_check_known_urls", "allow_insecure_cipher_suites", "cipher_suites"),
    *("curve_preferences", "connection_rate_limit", "pinned_certs", "cert_store"),
    *("cert_match_by", "cert_match", "ca_certs_match", "cert_match_skip_invalid"),
    *("handshake_first", "first", "immediate", "ocsp_peer", "certs", "certificates"),
    "min_version",
)
COMPRESSION: Final = keys("mode", "rtt_thresholds", "thresholds", "rtts", "rtt")
SIMPLE_AUTH: Final = keys("user", "username", "pass", "password", "token", "timeout")
AUTH_CALLOUT: Final = keys(
    *("issuer", "account", "acc", "auth_users", "users", "xkey", "key", "allowed_accounts")
)
_LISTEN: Final = ("listen", "port", "host", "net", "advertise", "write_deadline", "write_timeout")
_AUTH: Final = keys(
    *SIMPLE_AUTH,
    *("users", "default_permission", "default_permissions", "permissions", "auth_callout"),
    *("auth_hook", "proxy_required"),
)
CLUSTER: Final = keys(
    *_LISTEN,
    *("name", "routes", "cluster_advertise", "no_advertise", "connect_retries"),
    *("connect_backoff", "permissions", "pool_size", "accounts", "ping_interval", "ping_max"),
    authorization=_AUTH,
    tls=TLS,
    compression=COMPRESSION,
)
GATEWAY: Final = keys(
    *_LISTEN,
    *("name", "connect_retries", "connect_backoff", "reject_unknown", "reject_unknown_cluster"),
    authorization=_AUTH,
    tls=TLS,
    gateways=keys("name", "url", "urls", tls=TLS),
)
_REMOTE: Final = keys(
    *("no_randomize", "dont_randomize", "url", "urls", "account", "local", "creds"),
    *("credentials", "nkey", "seed", "hub", "deny_imports", "deny_import", "deny_exports"),
    *("deny_export", "ws_compress", "ws_compression", "websocket_compress"),
    *("websocket_compression", "ws_no_masking", "websocket_no_masking"),
    *("isolate_leafnode_interest", "isolate", "request_isolation", "first_info_timeout"),
    *("dial_timeout", "disabled", "ignore_discovered_servers"),
    tls=TLS,
    compression=COMPRESSION,
    jetstream_cluster_migrate=keys("leader_migrate_delay"),
    js_cluster_migrate=keys("leader_migrate_delay"),
    proxy=keys("url", "username", "password", "timeout"),
)
LEAFNODES: Final = keys(
    *_LISTEN,
    *("reconnect", "reconnect_delay", "reconnect_interval", "dial_timeout"),
    *("leafnode_advertise", "no_advertise", "min_version", "minimum_version"),
    *("isolate_leafnode_interest", "isolate"),
    tls=TLS,
    compression=COMPRESSION,
    remotes=_REMOTE,
    authorization=keys(
        *("user", "username", "pass", "password", "nkey", "timeout", "account"),
        "proxy_required",
        users=keys("user", "username", "pass", "password", "account", "proxy_required"),
    ),
)
WEBSOCKET: Final = keys(
    *("listen", "port", "host", "net", "advertise", "no_tls", "same_origin"),
    *("allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins", "origin"),
    *("handshake_timeout", "compress", "compression", "jwt_cookie", "user_cookie"),
    *("pass_cookie", "token_cookie", "no_auth_user", "headers", "ping_interval"),
    tls=TLS,
    authorization=SIMPLE_AUTH,
    authentication=SIMPLE_AUTH,
)
MQTT: Final = keys(
    *("listen", "port", "host", "net", "no_auth_user", "ack_wait", "ackwait"),
    *("js_api_timeout", "api_timeout", "max_ack_pending", "max_pending", "max_inflight"),
    *("js_domain", "stream_replicas", "consumer_replicas", "consumer_memory_storage"),
    *("consumer_inactive_threshold", "consumer_auto_cleanup", "reject_qos2_publish"),
    "downgrade_qos2_subscribe",
    tls=TLS,
    authorization=SIMPLE_AUTH,
    authentication=SIMPLE_AUTH,
)
RESOLVER: Final = keys(
    *("dir", "type", "allow_delete", "hard_delete", "limit", "ttl", "interval", "timeout")
)
OCSP: Final = keys("mode", "url", "urls")
OCSP_CACHE: Final = keys("type", "local_store", "preserve_revoked", "save_interval")
OCSP_PEER: Final = keys(
    *("verify", "ca_timeout", "allowed_clockskew", "warn_only", "unknown_is_good"),
    *("allow_when_ca_unreachable", "cache_ttl_when_next_update_unset"),
)
PROXIES: Final = keys(trusted=keys("key", "public_key"))
TPM: Final = keys("keys_file", "encryption_password", "srk_password", "pcr", "cipher")
EXPORT: Final = keys(
    *("stream", "service", "response_type", "response"),
    *("threshold", "response_threshold", "response_max_time", "response_time", "accounts"),
    *("latency", "account_token_position", "allow_trace"),
)
IMPORT: Final = keys(
    "prefix",
    *("to", "share", "allow_trace"),
    stream=keys("account", "subject"),
    service=keys("account", "subject"),
)


def later(name: str, below: Keys = ANYTHING) -> Decoder:
    """Refuses an option by its name, after a look at the keys inside it."""

    def read(node: Node, report: Report) -> Draft:
        before = len(report.problems)
        _check_keys(node, below, report)
        if node.value and len(report.problems) == before:
            raise InvalidError(f"{name} is not supported yet")
        return {}

    return Decoder("not supported yet", read)


def _check_keys(node: Node, below: Keys, report: Report) -> None:
    if isinstance(node.value, list):
        for entry in node.value:
            _check_keys(entry, below, report)
    elif isinstance(node.value, dict) and "*" not in below:
        for name, entry in node.value.items():
            if name.lower() in below:
                _check_keys(entry, below[name.lower()], report)
            else:
                report.unknown(entry, name)
