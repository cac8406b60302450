"""`verify_and_map`: which user a client certificate stands for.

Tried in this order: e-mail addresses, DNS names, URIs, the distinguished name (its parts in the
given order, then in any), the subject with its domain components behind, the subject as text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator

from cryptography import x509
from cryptography.x509.oid import NameOID

from server.core.tlsstate import TlsState, subject_text

BLANK_BEHIND_COMMA = re.compile(r"(?<!\\)([,+])\s+")


def find_user(tls: object, users: Collection[str]) -> tuple[str, str]:
    """The user's name (empty: none) and how it was found, for the debug log."""
    if not isinstance(tls, TlsState):
        return "", "User required in cert, no TLS connection state"
    if tls.peer is None:
        return "", "User required in cert, no peer certificates found"
    certificate = x509.load_der_x509_certificate(tls.peer)
    for how, name in alternative_names(certificate):
        if name in users:
            return name, f'Using {how} found in cert for auth ["{name}"]'
    subject = certificate.subject
    name = match_distinguished_name(subject, users)
    if name:
        return name, f'Using DistinguishedNameMatch for auth ["{name}"]'
    text = subject_text(subject)
    components = domain_components(subject)
    if components and f"{text},{components}" in users:
        name = f"{text},{components}"
        return name, f'Using RDNSequence for auth ["{name}"]'
    if text in users:
        return text, f'Using certificate subject for auth ["{text}"]'
    return "", f'User in cert ["{text}"], not found'


def alternative_names(certificate: x509.Certificate) -> Iterator[tuple[str, str]]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return
    kinds = (
        ("email", x509.RFC822Name),
        ("SAN", x509.DNSName),
        ("URI", x509.UniformResourceIdentifier),
    )
    for how, kind in kinds:
        for value in extension.value.get_values_for_type(kind):
            yield how, str(value)


def match_distinguished_name(subject: x509.Name, users: Collection[str]) -> str:
    parsed = {name: parse_name(name) for name in users}
    for name, rdns in parsed.items():
        if rdns == subject.rdns:
            return name
    parts = Counter(subject.rdns)
    for name, rdns in parsed.items():
        if rdns is not None and Counter(rdns) == parts:
            return name
    return ""


def parse_name(text: str) -> list[x509.RelativeDistinguishedName] | None:
    """The parts of a distinguished name in a certificate's order; None if it is not one."""
    if "=" not in text:
        return None
    try:
        return x509.Name.from_rfc4514_string(BLANK_BEHIND_COMMA.sub(r"\1", text)).rdns
    except ValueError:
        return None


def domain_components(subject: x509.Name) -> str:
    found = subject.get_attributes_for_oid(NameOID.DOMAIN_COMPONENT)
    return ",".join(f"DC={attribute.value!s}" for attribute in found)
