"""The versions this server answers with."""

from __future__ import annotations

MARTLET_VERSION = "0.1.0"
"""Our own version, as in pyproject.toml."""

COMPAT_VERSION = "2.14.0"
"""The nats-server version that clients may assume: they switch features on it."""

JETSTREAM_API_LEVEL = 4
"""What of JetStream is there, as the API tells it (4: all that came with 2.14)."""

PROTOCOL_LEVEL = 1
"""`proto` of INFO: what the client protocol can do (1: asynchronous INFO)."""
