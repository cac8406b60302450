"""TLS of the client listener, with certificates that the test makes."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.e2e.certificates import Authority, Certificate
from tests.e2e.server import RawClient, ServerProcess, wait_for

# A loop's clock is a few milliseconds behind.
TIMER_SLACK_S = 0.01


class Pki:
    """An authority with a certificate for the server and one for a client."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.server = self.authority.issue("server")
        email: list[x509.GeneralName] = [x509.RFC822Name("ann@acme.com")]
        self.client = self.authority.issue("client", names=email)

    def config(self, *more: str, outside: str = "") -> str:
        """A configuration with this `tls` block and, behind it, other options."""
        timeout = "" if any("timeout" in line for line in more) else "timeout: 60"
        lines = "\n".join([*more, timeout])
        return (
            f'tls {{ cert_file: "{self.server.cert_file}", key_file: "{self.server.key_file}"\n'
            f"{lines} }}\n{outside}\n"
        )

    def verify(self) -> str:
        return f'ca_file: "{self.authority.ca_file}", verify: true'

    def upgrade(self, raw: RawClient, certificate: Certificate | None = None, **more: Any) -> None:
        """Makes the client's socket a TLS one, checking the server's certificate."""
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        if certificate is not None:
            context.load_cert_chain(certificate.cert_file, certificate.key_file)
        for name, value in more.items():
            setattr(context, name, value)
        raw.socket = context.wrap_socket(raw.socket, server_hostname="localhost")


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


def refused(raw: RawClient) -> bool:
    """Whether the server ends a connection whose handshake looked fine to the client."""
    try:
        raw.connect_with()
        return raw.line() == ""
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.feature("4-011", "1-009", "2-040")
def test_info_comes_in_the_clear_and_then_the_upgrade(tmp_path: Path, pki: Pki) -> None:
    with ServerProcess(tmp_path, config=pki.config()) as server, server.connect() as client:
        server.wait_log("TLS required for client connections")
        info = client.info()
        assert info["tls_required"] is True
        assert not {"tls_available", "tls_verify"} & info.keys()
        pki.upgrade(client)
        client.connect_with(protocol=1)
        client.expect("PONG")
        assert client.info()["tls_required"] is True
        client.send("SUB foo 1\r\nPUB foo 5\r\nhello\r\n")
        client.expect("MSG foo 1 5")
        client.expect("hello")


@pytest.mark.feature("4-011", "3-048")
def test_the_flags_make_a_tls_listener(tmp_path: Path, pki: Pki) -> None:
    flags = ("--tls", "--tlscert", str(pki.server.cert_file), "--tlskey", str(pki.server.key_file))
    with ServerProcess(tmp_path, *flags) as server, server.connect() as client:
        client.info()
        pki.upgrade(client)
        client.connect_with()
        client.expect("PONG")


@pytest.mark.feature("4-011", "1-097")
def test_a_client_that_does_not_upgrade_is_told_after_the_timeout(tmp_path: Path, pki: Pki) -> None:
    config = pki.config("timeout: 0.3")
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.info()
        client.expect("-ERR 'Secure Connection - TLS Required'")
        assert client.closed()


def test_a_plain_client_is_closed_and_logged(tmp_path: Path, pki: Pki) -> None:
    with ServerProcess(tmp_path, "-D", config=pki.config()) as server, server.connect() as client:
        client.info()
        client.send("CONNECT {}\r\nPING\r\n")
        assert client.closed()
        server.wait_log("TLS handshake error: ")
        server.wait_log("Client connection closed: TLS Handshake Failure")


@pytest.mark.feature("4-014", "1-009")
def test_verify_demands_a_certificate_of_the_authority(tmp_path: Path, pki: Pki) -> None:
    other = tmp_path / "other"
    other.mkdir()
    stranger = Authority(other, "stranger").issue("stranger")
    with ServerProcess(tmp_path, config=pki.config(pki.verify())) as server:
        with server.connect() as client:
            assert client.info()["tls_verify"] is True
            pki.upgrade(client, pki.client)
            client.connect_with()
            client.expect("PONG")
        with server.connect() as client:
            client.info()
            pki.upgrade(client)
            assert refused(client)
        with server.connect() as client:
            client.info()
            pki.upgrade(client, stranger)
            assert refused(client)
        server.wait_log("TLS handshake error")


@pytest.mark.feature("4-012")
def test_the_handshake_may_come_first(tmp_path: Path, pki: Pki) -> None:
    with ServerProcess(tmp_path, "-D", config=pki.config("handshake_first: true")) as server:
        server.wait_log('Clients that are not using "TLS Handshake First" option will fail')
        with server.connect() as client:
            client.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.socket.recv(1)
        with server.connect() as client:
            pki.upgrade(client)
            assert client.info()["tls_required"] is True
            client.connect_with()
            client.expect("PONG")
        server.wait_log("TLS handshake complete")


@pytest.mark.feature("4-012", "3-052")
@pytest.mark.parametrize(("word", "least_s"), [("auto", 0.05), ('"150ms"', 0.15)])
def test_with_a_fallback_who_waits_is_told_in_the_clear(
    tmp_path: Path, pki: Pki, word: str, least_s: float
) -> None:
    with ServerProcess(tmp_path, config=pki.config(f"handshake_first: {word}")) as server:
        began = time.monotonic()
        with server.connect() as client:
            client.info()
            assert time.monotonic() - began >= least_s - TIMER_SLACK_S
            pki.upgrade(client)
            client.connect_with()
            client.expect("PONG")


@pytest.mark.feature("4-012", "3-052")
def test_with_a_fallback_who_begins_the_handshake_is_not_told_before(
    tmp_path: Path, pki: Pki
) -> None:
    with ServerProcess(tmp_path, config=pki.config('handshake_first: "50s"')) as server:
        with server.connect() as client:
            pki.upgrade(client)
            client.info()
            client.connect_with()
            client.expect("PONG")


@pytest.mark.feature("4-013", "1-009", "2-040")
def test_plain_clients_may_be_allowed_beside(tmp_path: Path, pki: Pki) -> None:
    with ServerProcess(tmp_path, config=pki.config(outside="allow_non_tls: true")) as server:
        server.wait_log("TLS available for client connections")
        with server.connect() as plain, server.connect() as secure:
            info = plain.info()
            assert info["tls_available"] is True
            assert "tls_required" not in info
            plain.connect_with()
            plain.expect("PONG")
            secure.info()
            pki.upgrade(secure)
            secure.connect_with()
            secure.expect("PONG")
            plain.send("SUB foo 1\r\nPING\r\n")
            plain.expect("PONG")
            secure.send("PUB foo 2\r\nhi\r\n")
            plain.expect("MSG foo 1 2")


@pytest.mark.feature("4-018", "3-053")
def test_pinned_certificates(tmp_path: Path, pki: Pki) -> None:
    second = pki.authority.issue("second", names=[x509.RFC822Name("bob@acme.com")])
    config = pki.config(pki.verify(), f'pinned_certs: ["{pki.client.key_sha256}"]')
    with ServerProcess(tmp_path, config=config) as server:
        with server.connect() as client:
            client.info()
            pki.upgrade(client, pki.client)
            client.connect_with()
            client.expect("PONG")
        with server.connect() as client:
            client.info()
            pki.upgrade(client, second)
            assert refused(client)
        server.wait_log("TLS handshake error: certificate not pinned")


@pytest.mark.feature("4-015", "4-001")
def test_a_certificate_names_the_user(tmp_path: Path, pki: Pki) -> None:
    stranger = pki.authority.issue("stranger", names=[x509.RFC822Name("nobody@acme.com")])
    config = pki.config(
        f'ca_file: "{pki.authority.ca_file}", verify_and_map: true',
        outside='authorization { users = [ { user: "ann@acme.com", permissions { pub: "a" } } ] }',
    )
    with ServerProcess(tmp_path, "-D", config=config) as server:
        with server.connect() as client:
            client.info()
            pki.upgrade(client, pki.client)
            client.connect_with(user="someone")
            client.expect("PONG")
            client.send("PUB b 0\r\n\r\n")
            client.expect("-ERR 'Permissions Violation for Publish to \"b\"'")
            server.wait_log('User "someone" found in connect proto, but user required from cert')
        with server.connect() as client:
            client.info()
            pki.upgrade(client, stranger)
            client.connect_with()
            client.expect("-ERR 'Authorization Violation'")


NKEY = "UAH42UG6PV552P5SWLWTBP3H3S5BHAVCO2IEKEXUANJXR75J63RQ5WM6"


@pytest.mark.feature("4-015", "4-007")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", {"user": "bob", "pass": "secret", "nkey": NKEY}),
        ("", {"user": "bob", "pass": "secret", "nkey": "x"}),
        ("no_auth_user: bob", {"nkey": NKEY}),
        ("no_auth_user: bob", {}),
        ("no_auth_user: bob", None),
    ],
)
def test_who_names_another_user_is_still_the_certificates(
    tmp_path: Path, pki: Pki, more: str, said: dict[str, str] | None
) -> None:
    stranger = pki.authority.issue("stranger", names=[x509.RFC822Name("nobody@acme.com")])
    config = pki.config(
        f'ca_file: "{pki.authority.ca_file}", verify_and_map: true',
        outside="authorization { users = [ { user: bob, password: secret } ] }\n" + more,
    )
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.info()
        pki.upgrade(client, stranger)
        if said is None:
            client.send("PING\r\n")
        else:
            client.connect_with(**said)
        client.expect("-ERR 'Authorization Violation'")


@pytest.mark.feature("4-015", "3-089")
def test_a_reload_that_maps_certificates_closes_who_has_none(tmp_path: Path, pki: Pki) -> None:
    users = "authorization { users = [ { user: bob, password: secret } ] }"
    plain = pki.config(pki.verify(), outside=users)
    mapped = pki.config(pki.verify() + ", verify_and_map: true", outside=users)
    with ServerProcess(tmp_path, config=plain) as server, server.connect() as client:
        client.info()
        pki.upgrade(client, pki.client)
        client.connect_with(user="bob", **{"pass": "secret"})
        client.expect("PONG")
        assert "Reloaded" in server.reload(mapped)
        client.expect("-ERR 'Authorization Violation'")


@pytest.mark.feature("4-015")
def test_a_certificate_does_not_stand_for_a_password(tmp_path: Path, pki: Pki) -> None:
    config = pki.config(
        f'ca_file: "{pki.authority.ca_file}", verify_and_map: true',
        outside='authorization { users = [ { user: "ann@acme.com", password: secret } ] }',
    )
    with ServerProcess(tmp_path, config=config) as server:
        for password, answer in (("", "-ERR 'Authorization Violation'"), ("secret", "PONG")):
            with server.connect() as client:
                client.info()
                pki.upgrade(client, pki.client)
                client.connect_with(**{"pass": password})
                client.expect(answer)


@pytest.mark.feature("4-016")
def test_no_login_opens_the_user_of_a_certificate(tmp_path: Path, pki: Pki) -> None:
    """A plain client beside TLS names the user that has no password."""
    config = pki.config(
        f'ca_file: "{pki.authority.ca_file}", verify_and_map: true',
        outside='allow_non_tls: true, authorization { users = [ { user: "ann@acme.com" } ] }',
    )
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.info()
        client.connect_with(user="ann@acme.com", **{"pass": ""})
        client.expect("-ERR 'Authorization Violation'")


@pytest.mark.feature("4-014", "3-050")
@pytest.mark.parametrize(
    ("block", "more", "alert"),
    [
        ("verify", {}, "CERTIFICATE_REQUIRED"),
        ('min_version: "1.3"', {"maximum_version": ssl.TLSVersion.TLSv1_2}, "PROTOCOL_VERSION"),
    ],
)
def test_who_is_refused_is_told_why(
    tmp_path: Path, pki: Pki, block: str, more: dict[str, Any], alert: str
) -> None:
    config = pki.config(pki.verify() if block == "verify" else block)
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.info()
        with pytest.raises(ssl.SSLError, match=alert):
            pki.upgrade(client, **more)
            client.line()
        with server.connect() as plain:
            plain.info()
            plain.send("GET / HTTP/1.0\r\n\r\n")
            assert plain.line() == ""


@pytest.mark.feature("3-050")
def test_the_lowest_version_can_be_raised(tmp_path: Path, pki: Pki) -> None:
    with ServerProcess(tmp_path, config=pki.config('min_version: "1.3"')) as server:
        with server.connect() as client:
            client.info()
            with pytest.raises((ssl.SSLError, ConnectionError)):
                pki.upgrade(client, maximum_version=ssl.TLSVersion.TLSv1_2)
        with server.connect() as client:
            client.info()
            pki.upgrade(client)
            client.connect_with()
            client.expect("PONG")


@pytest.mark.feature("3-051")
def test_suites_and_a_curve_can_be_chosen(tmp_path: Path, pki: Pki) -> None:
    config = pki.config(
        "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]", "curve_preferences: [CurveP384]"
    )
    with ServerProcess(tmp_path, "-D", config=config) as server, server.connect() as client:
        client.info()
        pki.upgrade(client, maximum_version=ssl.TLSVersion.TLSv1_2)
        assert isinstance(client.socket, ssl.SSLSocket)
        assert client.socket.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"  # type: ignore[index]
        server.wait_log("TLS version 1.2, cipher suite TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")


@pytest.mark.feature("3-049", "4-014")
@pytest.mark.parametrize("is_verified", [False, True])
def test_several_certificates_are_chosen_by_name(
    tmp_path: Path, pki: Pki, is_verified: bool
) -> None:
    other = pki.authority.issue("other", names=[x509.DNSName("other.example")])
    pairs = ", ".join(
        f'{{ cert_file: "{c.cert_file}", key_file: "{c.key_file}" }}' for c in (pki.server, other)
    )
    verify = pki.verify() if is_verified else ""
    config = f"tls {{ certs = [ {pairs} ]\n{verify} }}"
    context = ssl.create_default_context(cafile=str(pki.authority.ca_file))
    if is_verified:
        context.load_cert_chain(pki.client.cert_file, pki.client.key_file)
    with ServerProcess(tmp_path, config=config) as server:
        for name in ("other.example", "localhost"):
            with server.connect() as client:
                client.info()
                client.socket = context.wrap_socket(client.socket, server_hostname=name)
                client.connect_with()
                client.expect("PONG")


@pytest.mark.feature("1-094", "7-014", "3-054")
def test_handshakes_can_be_limited(tmp_path: Path, pki: Pki) -> None:
    with ServerProcess(tmp_path, config=pki.config("connection_rate_limit: 2")) as server:
        told = 0
        for _ in range(8):
            with server.connect() as client:
                client.info()
                try:
                    pki.upgrade(client)
                    client.connect_with()
                    client.expect("PONG")
                except ssl.SSLError:
                    told += 1
        assert told >= 2
        server.wait_log(r"\[WRN\] Rejected \d+ connections due to TLS rate limiting")


@pytest.mark.feature("2-010")
@pytest.mark.parametrize("missing", ["cert", "key"])
def test_a_missing_certificate_file_is_a_start_error(
    tmp_path: Path, pki: Pki, missing: str
) -> None:
    gone = pki.server.cert_file if missing == "cert" else pki.server.key_file
    gone.unlink()
    with ServerProcess(tmp_path, config=pki.config(), ready=False) as server:
        assert server.wait_exit() == 1
        assert any(str(gone) in line for line in server.log())
        assert not any("Listening for client" in line for line in server.log())


@pytest.mark.feature("3-088", "4-018")
def test_a_reload_takes_a_new_certificate(tmp_path: Path, pki: Pki) -> None:
    def served(server: ServerProcess) -> bytes:
        with server.connect() as client:
            client.info()
            pki.upgrade(client)
            assert isinstance(client.socket, ssl.SSLSocket)
            return client.socket.getpeercert(binary_form=True) or b""

    with ServerProcess(tmp_path, config=pki.config()) as server, server.connect() as stays:
        stays.info()
        pki.upgrade(stays)
        stays.connect_with()
        stays.expect("PONG")
        assert served(server) == pki.server.der
        renewed = pki.authority.issue("server", days=20)
        assert "Reloaded server" in server.reload(pki.config())
        assert served(server) == renewed.der
        stays.send("PING\r\n")
        stays.expect("PONG")
        pki.server.cert_file.write_text("broken")
        assert "Failed to reload" in server.reload(pki.config())
        assert served(server) == renewed.der


def test_tls_can_be_switched_on_and_off_at_a_reload(tmp_path: Path, pki: Pki) -> None:
    with ServerProcess(tmp_path, config="debug: false\n") as server:
        with server.connect() as stays, server.connect() as secure:
            stays.handshake()
            secure.handshake()
            server.reload(pki.config())
            server.wait_log("Reloaded: tls = enabled")
            with server.connect() as client:
                assert client.info()["tls_required"] is True
                pki.upgrade(client)
                client.connect_with()
                client.expect("PONG")
                server.reload("debug: false\n")
                server.wait_log("Reloaded: tls = disabled")
                client.send("PING\r\n")
                client.expect("PONG")
            stays.send("PING\r\n")
            stays.expect("PONG")
        with server.connect() as client:
            assert "tls_required" not in client.handshake()


@pytest.mark.feature("4-018", "3-091")
def test_connections_whose_pin_goes_are_closed_at_a_reload(tmp_path: Path, pki: Pki) -> None:
    second = pki.authority.issue("second", names=[x509.RFC822Name("bob@acme.com")])
    both = f'pinned_certs: ["{pki.client.key_sha256}", "{second.key_sha256}"]'
    one = f'pinned_certs: ["{second.key_sha256}"]'
    with ServerProcess(tmp_path, config=pki.config(pki.verify(), both)) as server:
        with server.connect() as goes, server.connect() as stays:
            for client, certificate in ((goes, pki.client), (stays, second)):
                client.info()
                pki.upgrade(client, certificate)
                client.connect_with()
                client.expect("PONG")
            server.reload(pki.config(pki.verify(), one))
            assert goes.closed()
            stays.send("PING\r\n")
            stays.expect("PONG")


@pytest.mark.feature("1-036", "4-011")
def test_the_time_for_connect_begins_behind_the_handshake(tmp_path: Path, pki: Pki) -> None:
    config = pki.config(outside='authorization { token: t, timeout: "300ms" }')
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.info()
        time.sleep(0.6)
        pki.upgrade(client)
        client.expect("-ERR 'Authentication Timeout'")
        assert client.closed()


def test_many_bytes_pass_through_tls_in_both_directions(tmp_path: Path, pki: Pki) -> None:
    payload = b"0123456789abcdef" * 50_000
    with (
        ServerProcess(tmp_path, config=pki.config()) as server,
        server.connect() as reader,
        server.connect() as writer,
    ):
        for client in (reader, writer):
            client.info()
            pki.upgrade(client)
            client.connect_with()
            client.expect("PONG")
        reader.send("SUB big 1\r\nPING\r\n")
        reader.expect("PONG")
        for _ in range(5):
            writer.send(b"PUB big %d\r\n%s\r\n" % (len(payload), payload))
        for _ in range(5):
            assert reader.line() == f"MSG big 1 {len(payload)}"
            while len(reader.buffer) < len(payload) + 2:
                reader.buffer += reader.socket.recv(1 << 20)
            assert reader.buffer[: len(payload)] == payload
            reader.buffer = reader.buffer[len(payload) + 2 :]


def test_nobody_is_left_when_tls_clients_vanish(tmp_path: Path, pki: Pki) -> None:
    with ServerProcess(tmp_path, "-m", "-1", config=pki.config()) as server:
        for _ in range(5):
            with server.connect() as client:
                client.info()
            with server.connect() as client:
                client.info()
                pki.upgrade(client)
                client.socket.close()

        def connections() -> int:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{server.http_port}/varz", timeout=30
            ) as page:
                return int(json.load(page)["connections"])

        wait_for(lambda: connections() == 0, "all connections to be gone")
        descriptors = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        with socket.create_connection((server.host, server.port)) as probe:
            probe.recv(1)
        assert descriptors < 40
