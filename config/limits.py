"""Every bound in one place.

Module constants are *hard*: they belong to the protocol or to another server's expectations and
never change. `Limits` holds the *soft* ones, which we choose ourselves; PRODUCTION is what a server
runs with, TINY is for tests that want to reach a bound in a few steps.
What a person may configure is not here but in `options`.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND_NS: Final = 1_000_000_000
MILLISECOND_NS: Final = 1_000_000

# --- the client protocol
MAX_PROTOCOL_VERB_BYTES: Final = 16
MAX_PUB_ARGS: Final = 3
MAX_HPUB_ARGS: Final = 4
PROTOCOL_SNIPPET_BYTES: Final = 32
CONTROL_LINE_SNIPPET_BYTES: Final = 128
MAX_INT32: Final = 2**31 - 1
# Above this, max_payload is allowed but deserves a warning.
MAX_PAYLOAD_WARNING_BYTES: Final = 8 * MIB
FIRST_PING_NS: Final = 2 * SECOND_NS
RTT_REFRESH_NS: Final = 3600 * SECOND_NS

# --- values of options that the reference bounds
MAX_SUBJECT_TOKENS: Final = 255
MIN_LAME_DUCK_NS: Final = 30 * SECOND_NS
HIGH_AUTH_TIMEOUT_NS: Final = 60 * SECOND_NS
TLS_FALLBACK_DELAY_NS: Final = 50 * MILLISECOND_NS
MIN_CONCURRENT_IO: Final = 4
MAX_CONCURRENT_IO: Final = 8192

# --- the configuration itself
MAX_CONFIG_FILE_BYTES: Final = 64 * MIB
MAX_CONFIG_DEPTH: Final = 128
MAX_INCLUDE_DEPTH: Final = 32
MAX_CONFIG_ERRORS: Final = 1000

# --- what an answer lists
MAX_LOST_SHOWN: Final = 10_000


class Limits(Struct, frozen=True, kw_only=True):
    """Soft bounds. The comment says what happens at the bound."""

    # One recv reads at most this much; the rest is read in the next turn.
    read_buffer_bytes: int = 256 * KIB
    # A connection may use this much of a turn before the others get theirs.
    reads_per_turn: int = 16
    accepts_per_turn: int = 256
    # An outbox above this is flushed before the end of the turn.
    early_flush_bytes: int = 1 * MIB
    # A payload from here on is referenced instead of copied.
    zero_copy_bytes: int = 4 * KIB
    # Part of max_pending above which a publisher that feeds the connection is stalled.
    stall_fraction: float = 0.75
    # The match cache is swept down to `..._swept` when it would exceed `..._entries`.
    match_cache_entries: int = 1024
    match_cache_swept_entries: int = 256
    # A client's permission cache is emptied down to `..._swept` at the bound.
    permission_cache_entries: int = 128
    permission_cache_swept_entries: int = 32
    # Reply subjects that allow_responses remembers for a client; the oldest goes first.
    allowed_reply_entries: int = 4096
    # Password checks waiting for a worker; above it a login is refused as a timeout would.
    auth_queue_entries: int = 1024
    # Log lines waiting for their file; above it lines are counted and dropped.
    log_queue_lines: int = 16384
    # Distinct texts remembered for rate limiting of repeated errors.
    log_rate_entries: int = 512
    # A monitoring request line plus headers; above it 431.
    http_request_bytes: int = 64 * KIB
    # Monitoring connections; above it the new one is closed.
    http_connections: int = 1024
    # Rows of one /connz or /subsz page when the request names no limit.
    monitor_page_rows: int = 1024


PRODUCTION: Final = Limits()
TINY: Final = replace(
    PRODUCTION,
    read_buffer_bytes=64,
    reads_per_turn=2,
    accepts_per_turn=2,
    early_flush_bytes=256,
    zero_copy_bytes=64,
    match_cache_entries=8,
    match_cache_swept_entries=2,
    permission_cache_entries=4,
    permission_cache_swept_entries=1,
    allowed_reply_entries=4,
    auth_queue_entries=2,
    log_queue_lines=4,
    log_rate_entries=4,
    http_request_bytes=512,
    http_connections=2,
    monitor_page_rows=4,
)
