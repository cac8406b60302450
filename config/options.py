"""What a server is told to do: frozen, complete, units last.

Every value here is final: the file, the flags, the environment and the defaults are already merged.
`msgspec.Struct` instead of a dataclass because defining these classes costs 1 ms instead of 10 at
every start.
"""

from typing import Final

from msgspec import Struct

GLOBAL_ACCOUNT: Final = "$G"
SYSTEM_ACCOUNT: Final = "$SYS"
REDACTED: Final = "[REDACTED]"

_SECOND_NS: Final = 1_000_000_000


class Secret(str):
    """A text that never shows itself: repr, str and format give `[REDACTED]`.

    Compare it (`==`), ask whether it is empty, `encode()` it or `reveal()` it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return REDACTED if self.reveal() else "''"

    def __str__(self) -> str:
        return REDACTED if self.reveal() else ""

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def reveal(self) -> str:
        """The text itself."""
        return self[:]


class SubjectPermission(Struct, frozen=True):
    """`allow` None means everything; an empty tuple means nothing. Deny beats allow.

    Entries for subscriptions may be `"subject queue"`.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()


class ResponsePermission(Struct, frozen=True):
    """Negative values mean without a limit."""

    max_messages: int = 1
    expires_ns: int = 120 * _SECOND_NS


class PermissionOptions(Struct, frozen=True, kw_only=True):
    publish: SubjectPermission | None = None
    subscribe: SubjectPermission | None = None
    allow_responses: ResponsePermission | None = None


class User(Struct, frozen=True, kw_only=True):
    """One login: either `name` with a password, or `nkey`."""

    name: str = ""
    password: Secret = Secret("")
    nkey: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: PermissionOptions | None = None
    # Upper-case connection types; empty allows every type.
    allowed_connection_types: frozenset[str] = frozenset()


class AuthOptions(Struct, frozen=True, kw_only=True):
    """Who may connect.

    `users` holds the users and nkeys of all accounts. `default_permissions` belong to those of the
    global account that have none; each account has its own.
    """

    user: str = ""
    password: Secret = Secret("")
    token: Secret = Secret("")
    timeout_ns: int = 2 * _SECOND_NS
    users: tuple[User, ...] = ()
    # There is an authorization block, empty or not.
    defined: bool = False
    no_auth_user: str = ""
    default_permissions: PermissionOptions | None = None


class AccountJetStreamOptions(Struct, frozen=True, kw_only=True):
    """What one account may use; -1 means without a limit."""

    max_memory_bytes: int = -1
    max_store_bytes: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    store_max_stream_bytes: int = -1
    max_bytes_required: bool = False


class MappedTo(Struct, frozen=True):
    """One destination of a subject mapping, and how many of a hundred messages go there."""

    subject: str
    percent: int
    # Only on servers of this cluster; empty: wherever nothing is said for the cluster.
    cluster: str = ""


class SubjectMapping(Struct, frozen=True):
    """What clients publish to `source` is published to one of `destinations` instead."""

    source: str
    destinations: tuple[MappedTo, ...]


class AccountOptions(Struct, frozen=True, kw_only=True):
    """-1 means without a limit."""

    name: str
    nkey: str = ""
    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload_bytes: int = -1
    max_leafnodes: int = -1
    default_permissions: PermissionOptions | None = None
    jetstream: AccountJetStreamOptions | None = None
    # Where and how often messages with a sampled `traceparent` are traced; empty: nowhere.
    trace_destination: str = ""
    trace_percent: int = 100
    mappings: tuple[SubjectMapping, ...] = ()


class CertificatePair(Struct, frozen=True):
    cert_file: str
    key_file: str


class TlsOptions(Struct, frozen=True, kw_only=True):
    """One tls block. `certificates` has the pair of cert_file and key_file, or all certs."""

    certificates: tuple[CertificatePair, ...] = ()
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    insecure: bool = False
    timeout_ns: int = 2 * _SECOND_NS
    min_version: str = "1.2"
    # Names as Go writes them; empty means the secure defaults.
    cipher_suites: tuple[str, ...] = ()
    allow_insecure_cipher_suites: bool = False
    curve_preferences: tuple[str, ...] = ()
    handshake_first: bool = False
    # With handshake_first: wait this long for a hello, then send INFO; 0 waits for ever.
    handshake_first_fallback_ns: int = 0
    # Lower-case hex SHA-256 of the peer's SubjectPublicKeyInfo.
    pinned_certs: frozenset[str] = frozenset()
    # Handshakes a second; 0 means without a limit.
    connection_rate_limit: int = 0


class LogOptions(Struct, frozen=True, kw_only=True):
    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    # "text" is the reference's line, "json" one object a line.
    format: str = "text"
    file: str = ""
    # 0 means never rotate.
    file_size_limit_bytes: int = 0
    # Files kept in total, the current one included; 0 keeps all.
    file_max_count: int = 0
    syslog: bool = False
    remote_syslog: str = ""
    # 0 means the whole payload.
    max_traced_message_bytes: int = 0


class HttpOptions(Struct, frozen=True, kw_only=True):
    """Monitoring. Port 0 means off, -1 a free one; `port` and `tls_port` exclude each other."""

    host: str = "0.0.0.0"
    port: int = 0
    tls_port: int = 0
    base_path: str = "/"


class JetStreamOptions(Struct, frozen=True, kw_only=True):
    enabled: bool = False
    # Empty means the default place below the temporary directory.
    store_dir: str = ""
    strict: bool = True
    # -1 means: find out from the machine.
    max_memory_bytes: int = -1
    max_store_bytes: int = -1
    domain: str = ""
    # True: an ack leaves after its group's sync. False: sync every `sync_interval_ns`.
    sync_always: bool = True
    sync_interval_ns: int = 120 * _SECOND_NS
    unique_tag: str = ""
    extension_hint: str = ""
    encryption_key: Secret = Secret("")
    previous_encryption_key: Secret = Secret("")
    cipher: str = ""
    # What sealed blocks of streams with `compression: s2` are compressed with.
    block_compression: str = "zstd"
    # 0 means the engine's own default in all of the following.
    max_ack_pending: int = 0
    max_request_batch: int = 0
    max_ha_assets: int = 0
    max_duplicate_window_ns: int = 0
    max_batch_inflight_per_stream: int = 0
    max_batch_inflight_total: int = 0
    max_batch_messages: int = 0
    max_batch_timeout_ns: int = 0
    max_outstanding_catchup_bytes: int = 0
    max_buffered_bytes: int = 0
    max_buffered_messages: int = 0
    request_queue_limit: int = 0
    info_queue_limit: int = 0
    meta_compact_entries: int = 0
    meta_compact_bytes: int = 0
    meta_compact_sync: bool = False
    max_concurrent_io: int = 0
    # Account name to domain.
    default_domains: dict[str, str] = {}


class Options(Struct, frozen=True, kw_only=True):
    # --- where the values came from
    config_file: str = ""
    config_digest: str = ""

    # --- the server and its client listener
    server_name: str = ""
    server_tags: tuple[str, ...] = ()
    server_metadata: dict[str, str] = {}
    host: str = "0.0.0.0"
    # -1 means a free one.
    port: int = 4222
    client_advertise: str = ""
    tls: TlsOptions | None = None
    allow_non_tls: bool = False

    # --- limits and liveness of a connection
    max_control_line_bytes: int = 4096
    max_payload_bytes: int = 1024 * 1024
    max_pending_bytes: int = 64 * 1024 * 1024
    # 0 refuses everybody.
    max_connections: int = 65536
    # 0 means without a limit in both.
    max_subscriptions: int = 0
    max_subject_tokens: int = 0
    max_closed_clients: int = 10000
    ping_interval_ns: int = 120 * _SECOND_NS
    max_pings_out: int = 2
    write_deadline_ns: int = 10 * _SECOND_NS
    # "default" (close for clients), "close" or "retry".
    write_timeout: str = "default"
    no_fast_producer_stall: bool = False
    no_header_support: bool = False
    disable_sublist_cache: bool = False
    # Connections may begin with a load balancer's header that tells whose they are.
    proxy_protocol: bool = False

    # --- security
    auth: AuthOptions = AuthOptions()
    accounts: tuple[AccountOptions, ...] = ()
    # Those of the account $G, which has no options of its own.
    mappings: tuple[SubjectMapping, ...] = ()
    system_account: str = SYSTEM_ACCOUNT
    no_system_account: bool = False

    # --- operation
    log: LogOptions = LogOptions()
    http: HttpOptions = HttpOptions()
    pid_file: str = ""
    ports_file_dir: str = ""
    lame_duck_duration_ns: int = 120 * _SECOND_NS
    lame_duck_grace_period_ns: int = 10 * _SECOND_NS
    connect_error_reports: int = 3600
    reconnect_error_reports: int = 1
    feature_flags: dict[str, bool] = {}

    # --- streams
    jetstream: JetStreamOptions = JetStreamOptions()
