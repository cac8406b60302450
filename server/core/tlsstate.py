"""What a finished TLS handshake told about a connection (`Client.tls`)."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any


class TlsState:
    """`version` is "1.2" or "1.3", `cipher` the suite's name, `peer` the peer's certificate in DER
    (None when it sent none), `first` whether the handshake came before INFO."""

    def __init__(self, version: str, cipher: str, peer: bytes | None, first: bool) -> None:
        self.version = version
        self.cipher = cipher
        self.peer = peer
        self.first = first

    def as_connz(self) -> dict[str, Any]:
        """The keys of a monitoring page's entry."""
        if not self.version:
            return {}
        page: dict[str, Any] = {"tls_version": self.version, "tls_cipher_suite": self.cipher}
        if self.first:
            page["tls_first"] = True
        return page

    @cached_property
    def peer_key_sha256(self) -> str:
        """Hex SHA-256 of the peer's SubjectPublicKeyInfo; empty without a certificate."""
        if self.peer is None:
            return ""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = x509.load_der_x509_certificate(self.peer).public_key()
        spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(spki).hexdigest()
