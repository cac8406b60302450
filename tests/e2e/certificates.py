"""Certificates that a test makes for itself."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.UTC)


class Certificate:
    """A certificate and its key, in files."""

    def __init__(self, directory: Path, stem: str, cert: x509.Certificate, key: bytes) -> None:
        self.cert_file = directory / f"{stem}.pem"
        self.key_file = directory / f"{stem}-key.pem"
        self.cert_file.write_bytes(cert.public_bytes(Encoding.PEM))
        self.key_file.write_bytes(key)
        self.der = cert.public_bytes(Encoding.DER)
        spki = cert.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.key_sha256 = hashlib.sha256(spki).hexdigest()


class Authority:
    """Signs certificates for the files of one directory."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._serials = 0
        cert = self._sign(self._name, self._key, [], is_authority=True)
        self.ca_file = directory / f"{name.replace(' ', '-')}.pem"
        self.ca_file.write_bytes(cert.public_bytes(Encoding.PEM))

    def issue(
        self,
        stem: str,
        subject: x509.Name | None = None,
        *,
        names: list[x509.GeneralName] | None = None,
        days: int = 10,
    ) -> Certificate:
        """For localhost and its addresses, unless other names are given."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, stem)])
        if names is None:
            loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            names = [x509.DNSName("localhost"), loopback]
        cert = self._sign(subject, key, names, days=days)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Certificate(self._directory, stem, cert, pem)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        names: list[x509.GeneralName],
        *,
        is_authority: bool = False,
        days: int = 10,
    ) -> x509.Certificate:
        self._serials += 1
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(self._serials)
            .not_valid_before(NOW - datetime.timedelta(days=1))
            .not_valid_after(NOW + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())
