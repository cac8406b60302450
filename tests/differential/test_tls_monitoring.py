"""What both servers' /connz tells of clients that came with a certificate."""

from __future__ import annotations

import json
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.e2e.certificates import Authority, Certificate
from tests.e2e.server import MARTLET, NATS_SERVER, RawClient, ServerProcess, wait_for

pytestmark = pytest.mark.peer

SUBJECT = x509.Name(
    [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "SE"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Birds, Inc."),
        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "swifts+"),
        x509.NameAttribute(NameOID.COMMON_NAME, "ann"),
        x509.NameAttribute(NameOID.SERIAL_NUMBER, "7"),
    ]
)


def connz(server: ServerProcess, query: str) -> list[dict[str, Any]]:
    """The entries, with what is told of TLS but the suite, which each library chooses."""
    url = f"http://127.0.0.1:{server.http_port}/connz?{query}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        entries = json.load(answer)["connections"]
    told = ("tls_version", "tls_first", "tls_peer_certs")
    return [{key: entry[key] for key in told if key in entry} for entry in entries]


def dial(server: ServerProcess, ca_file: Path, certificate: Certificate) -> RawClient:
    context = ssl.create_default_context(cafile=str(ca_file))
    context.load_cert_chain(certificate.cert_file, certificate.key_file)
    client = server.connect()
    client.info()
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    client.connect_with()
    client.expect("PONG")
    return client


@pytest.mark.feature("5-021")
def test_a_certificate_is_told_to_who_asks_for_logins(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, ann = authority.issue("server"), authority.issue("ann", SUBJECT)
    config = (
        f'tls {{ cert_file: "{own.cert_file}", key_file: "{own.key_file}", '
        f'ca_file: "{authority.ca_file}", verify: true, timeout: 60 }}\nhttp: "127.0.0.1:-1"\n'
    )
    told = []
    for command in (NATS_SERVER, MARTLET):
        with ServerProcess(tmp_path, config=config, command=command) as server:
            with dial(server, authority.ca_file, ann):
                living = [connz(server, "auth=1"), connz(server, "")]
            wait_for(lambda server=server: connz(server, "state=closed"), "the client's end")
            told.append([*living, connz(server, "state=closed&auth=1")])
    assert "tls_peer_certs" in told[0][0][0]
    assert told[1] == told[0]
