"""Bounds of the configuration and of what it configures, and the units that bounds are written in.

What a person may configure is in `options`. Queues and caches have their bounds beside them:
ARCHITECTURE.md lists them.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND_NS: Final = 1_000_000_000
MILLISECOND_NS: Final = 1_000_000

# --- values of options that the reference bounds
MAX_INT32: Final = 2**31 - 1
# Above this, max_payload is allowed but deserves a warning.
MAX_PAYLOAD_WARNING_BYTES: Final = 8 * MIB
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
