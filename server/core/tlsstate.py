"""What a finished TLS handshake told about a connection (`Client.tls`)."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography import x509


class TlsState:
    """`version` is "1.2" or "1.3", `cipher` the suite's name, `peer` the peer's certificate in DER
    (None when it sent none), `first` whether the handshake came before INFO, `chain` what the peer
    sent behind its certificate."""

    def __init__(
        self,
        version: str,
        cipher: str,
        peer: bytes | None,
        first: bool,
        chain: tuple[bytes, ...] = (),
    ) -> None:
        self.version = version
        self.cipher = cipher
        self.peer = peer
        self.first = first
        self.chain = chain

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
        return key_sha256(certificate_of(self.peer)) if self.peer is not None else ""

    @cached_property
    def peer_certificates(self) -> list[dict[str, str]]:
        """What monitoring tells of the certificates that the peer sent; empty without any."""
        return [described(der) for der in (self.peer, *self.chain) if der is not None]


def certificate_of(der: bytes) -> x509.Certificate:
    from cryptography import x509

    return x509.load_der_x509_certificate(der)


def described(der: bytes) -> dict[str, str]:
    certificate = certificate_of(der)
    told = {
        "subject": subject_text(certificate.subject),
        "spki_sha256": key_sha256(certificate),
        "cert_sha256": hashlib.sha256(der).hexdigest(),
    }
    return {name: text for name, text in told.items() if text}


def key_sha256(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    spki = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def subject_text(subject: x509.Name) -> str:
    """As operators write it in a configuration: RFC 2253, last part first."""
    from cryptography.x509.oid import NameOID

    return subject.rfc4514_string(
        {NameOID.SERIAL_NUMBER: "SERIALNUMBER", NameOID.POSTAL_CODE: "POSTALCODE"}
    )
