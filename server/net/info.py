"""The INFO line's JSON: what a server tells a client about itself."""

from __future__ import annotations

import base64
import platform
from typing import Final

import msgspec

from server.version import COMPAT_VERSION, MARTLET_VERSION, PROTOCOL_LEVEL

NONCE_BYTES: Final = 11


class Info(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Keys in the reference's order; those with a default are left out while they have it."""

    server_id: str
    server_name: str
    version: str
    proto: int
    git_commit: str = ""
    go: str
    host: str
    port: int
    headers: bool
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int
    jetstream: bool = False
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    connect_urls: list[str] = []
    ldm: bool = False
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    xkey: str = ""
    martlet: str


def base_info(
    *, server_id: str, server_name: str, xkey: str, host: str, port: int, max_payload: int
) -> Info:
    """What is the same for every connection."""
    return Info(
        server_id=server_id,
        server_name=server_name,
        version=COMPAT_VERSION,
        proto=PROTOCOL_LEVEL,
        go=f"python{platform.python_version()}",
        host=host,
        port=port,
        headers=True,
        max_payload=max_payload,
        xkey=xkey,
        martlet=MARTLET_VERSION,
    )


def nonce_text(random_bytes: bytes) -> str:
    """Eleven random bytes as the fifteen characters that go into INFO and get signed."""
    return base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")


encode_info = msgspec.json.Encoder().encode
