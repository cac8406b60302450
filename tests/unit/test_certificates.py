"""`verify_and_map`: which user a certificate stands for."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from server.auth.certificates import find_user
from server.core.tlsstate import TlsState
from tests.e2e.certificates import Authority

SUBJECT = x509.Name(
    [
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "com"),
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "acme"),
        x509.NameAttribute(NameOID.COUNTRY_NAME, "US"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
        x509.NameAttribute(NameOID.COMMON_NAME, "bob"),
    ]
)
NAMES: list[x509.GeneralName] = [
    x509.DNSName("host.acme.com"),
    x509.RFC822Name("bob@acme.com"),
    x509.UniformResourceIdentifier("spiffe://acme/bob"),
]


def user_of(tmp_path: Path, users: Collection[str], *, names: bool = True) -> str:
    certificate = Authority(tmp_path).issue("bob", SUBJECT, names=NAMES if names else [])
    return find_user(TlsState("1.3", "x", certificate.der, first=False), users)[0]


@pytest.mark.feature("4-015")
def test_email_comes_before_dns_name_before_uri(tmp_path: Path) -> None:
    every = ["spiffe://acme/bob", "host.acme.com", "bob@acme.com"]
    assert user_of(tmp_path, every) == "bob@acme.com"
    assert user_of(tmp_path, every[:2]) == "host.acme.com"
    assert user_of(tmp_path, every[:1]) == "spiffe://acme/bob"


@pytest.mark.feature("4-015")
@pytest.mark.parametrize(
    "user",
    [
        r"CN=bob,O=Acme\, Inc.,C=US,DC=acme,DC=com",
        r"CN=bob, O=Acme\, Inc., C=US, DC=acme, DC=com",
        r"O=Acme\, Inc.,CN=bob,DC=com,DC=acme,C=US",
    ],
)
def test_then_the_distinguished_name_in_its_order_or_any(tmp_path: Path, user: str) -> None:
    assert user_of(tmp_path, ["other", user]) == user
    assert user_of(tmp_path, ["other", user], names=False) == user


@pytest.mark.feature("4-015")
def test_the_exact_order_wins(tmp_path: Path) -> None:
    exact = r"CN=bob,O=Acme\, Inc.,C=US,DC=acme,DC=com"
    shuffled = r"O=Acme\, Inc.,CN=bob,DC=com,DC=acme,C=US"
    assert user_of(tmp_path, [shuffled, exact]) == exact


@pytest.mark.parametrize(
    "user", ["bob", r"CN=bob,O=Acme\, Inc.,C=US", "CN=bob", "nonsense=", "CN=Bob,O=x"]
)
def test_a_part_of_the_name_is_not_enough(tmp_path: Path, user: str) -> None:
    assert user_of(tmp_path, [user]) == ""


def test_no_certificate_no_user() -> None:
    assert find_user(None, ["x"]) == ("", "User required in cert, no TLS connection state")
    state = TlsState("1.3", "x", None, first=False)
    assert find_user(state, ["x"]) == ("", "User required in cert, no peer certificates found")


@pytest.mark.feature("4-018")
def test_the_key_digest_is_that_of_the_public_key(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).issue("bob")
    state = TlsState("1.3", "x", certificate.der, first=False)
    assert state.peer_key_sha256 == certificate.key_sha256
