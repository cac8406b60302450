"""What monitoring tells about events that only the real process has."""

from __future__ import annotations

import json
import resource
import signal
import socket
import ssl
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.e2e.certificates import Authority, Certificate
from tests.e2e.server import ServerProcess, wait_for


def page(server: ServerProcess, path: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{server.http_port}{path}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        content: dict[str, Any] = json.load(answer)
        return content


def closed_reasons(server: ServerProcess) -> set[str]:
    return {entry["reason"] for entry in page(server, "/connz?state=closed")["connections"]}


def test_the_monitor_is_up_before_the_clients_listener(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "-m", "-1") as server:
        texts = [line.partition("[INF] ")[2] for line in server.log()]
        monitor = texts.index(f"Starting http monitor on 0.0.0.0:{server.http_port}")
        assert monitor < texts.index(f"Listening for client connections on 0.0.0.0:{server.port}")
        assert page(server, "/healthz") == {"status": "ok"}


@pytest.mark.feature("3-094", "7-017")
def test_a_reload_shows_in_varz(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "-m", "-1", config="server_tags: [a, b]\n") as server:
        before = page(server, "/varz")
        assert before["tags"] == ["a", "b"]
        assert before["config_digest"].startswith("sha256:")
        server.reload("server_tags: [c]\n")
        after = page(server, "/varz")
        assert after["tags"] == ["c"]
        assert after["config_digest"] != before["config_digest"]
        assert after["config_load_time"] > before["config_load_time"]
        assert after["start"] == before["start"]


@pytest.mark.feature("7-016")
def test_memory_and_processor_are_those_of_the_process(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "-m", "-1") as server:
        told = page(server, "/varz")
        status = Path(f"/proc/{server.pid}/status").read_text()
        resident = int(status.partition("VmRSS:")[2].split()[0]) * 1024
        assert abs(told["mem"] - resident) < 8 << 20
        assert 0 <= told["cpu"] <= 100


@pytest.mark.feature("1-102", "4-010")
def test_the_reasons_of_the_closed(tmp_path: Path) -> None:
    config = "max_connections: 2\nauthorization {{ user: ann, password: a, timeout: {} }}\n"
    with ServerProcess(tmp_path, "-m", "-1", config=config.format(60)) as server:
        with server.connect() as wrong:
            wrong.info()
            wrong.connect_with(user="ann", **{"pass": "b"})
            assert wrong.closed()
        with server.connect() as one, server.connect() as two, server.connect() as three:
            one.info()
            two.info()
            assert three.closed()
        wait_for(lambda: page(server, "/connz")["num_connections"] == 0, "room for another")
        server.reload(config.format(0.3))
        with server.connect() as late:
            late.info()
            assert late.closed()
        wanted = {
            "Authentication Failure",
            "Authentication Timeout",
            "Maximum Connections Exceeded",
            "Client Closed",
        }
        wait_for(lambda: wanted <= closed_reasons(server), "every reason")


@pytest.mark.feature("4-012", "4-011")
def test_tls_connections_are_shown_as_such(tmp_path: Path) -> None:
    import ssl

    authority = Authority(tmp_path)
    cert = authority.issue("server")
    config = (
        f'tls {{ cert_file: "{cert.cert_file}", key_file: "{cert.key_file}"\n'
        "handshake_first: true }\n"
    )
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with ServerProcess(tmp_path, "-m", "-1", config=config) as server:
        with server.connect() as client:
            client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
            client.handshake()
            (shown,) = page(server, "/connz")["connections"]
        assert shown["tls_version"] == "1.3"
        assert shown["tls_cipher_suite"].startswith("TLS_")
        assert shown["tls_first"] is True
        varz = page(server, "/varz")
        assert varz["tls_required"] is True
        assert varz["tls_cert_not_after"].endswith("Z")


@pytest.mark.feature("2-003", "5-001")
def test_https_uses_the_clients_certificate_without_asking_for_one(tmp_path: Path) -> None:
    import ssl

    authority = Authority(tmp_path)
    cert = authority.issue("server")
    config = (
        f'tls {{ cert_file: "{cert.cert_file}", key_file: "{cert.key_file}"\n'
        f'ca_file: "{authority.ca_file}", verify: true }}\nhttps_port: -1\n'
    )
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with ServerProcess(tmp_path, config=config) as server:
        assert server.http_port
        url = f"https://localhost:{server.http_port}/varz"
        with urllib.request.urlopen(url, timeout=30, context=context) as answer:
            assert json.load(answer)["https_port"] == server.http_port


@pytest.mark.feature("3-088", "5-001", "5-015")
def test_a_renewed_certificate_is_served_and_told_from_the_reload_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    first = authority.issue("server")
    config = (
        f'tls {{ cert_file: "{first.cert_file}", key_file: "{first.key_file}" }}\nhttps_port: -1\n'
    )
    context = ssl.create_default_context(cafile=str(authority.ca_file))

    def seen(server: ServerProcess) -> tuple[bytes, str]:
        """The certificate that is shown, and when it ends by what the page says."""
        with (
            socket.create_connection((server.host, server.http_port), timeout=30) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as wrapped,
        ):
            wrapped.sendall(b"GET /varz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            shown = wrapped.getpeercert(binary_form=True) or b""
            answer = b"".join(iter(lambda: wrapped.recv(65536), b""))
        return shown, json.loads(answer.partition(b"\r\n\r\n")[2])["tls_cert_not_after"]

    with ServerProcess(tmp_path, config=config) as server:
        assert seen(server) == (first.der, end_of(first))
        renewed = authority.issue("server", days=20)
        assert seen(server) == (first.der, end_of(first))
        assert "Reloaded" in server.reload(config)
        wait_for(lambda: seen(server) == (renewed.der, end_of(renewed)), "the new certificate")
        renewed.cert_file.unlink()
        assert seen(server) == (renewed.der, end_of(renewed))


def end_of(certificate: Certificate) -> str:
    parsed = x509.load_der_x509_certificate(certificate.der)
    return parsed.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.feature("1-021")
def test_accepted_sockets_have_no_keepalive(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, server.connect() as client:
        client.handshake()
        mine = f":{client.socket.getsockname()[1]:04X}"
        theirs = f":{server.port:04X}"
        timers = [
            fields[5]
            for name in ("tcp", "tcp6")
            for fields in map(str.split, Path(f"/proc/net/{name}").read_text().splitlines()[1:])
            if fields[1].endswith(theirs) and fields[2].endswith(mine)
        ]
        # "02:..." is a running keepalive timer.
        assert len(timers) == 1
        assert not timers[0].startswith("02")


@pytest.mark.feature("1-022")
def test_running_out_of_descriptors_is_survived(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, server.connect() as first:
        first.handshake()
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 3, hard))
        crowd = [server.connect() for _ in range(10)]
        server.wait_log(r"\[ERR\] .*[Aa]ccept error")
        first.send("PING\r\n")
        first.expect("PONG")
        for client in crowd:
            client.socket.close()
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 50, hard))
        with server.connect() as last:
            last.handshake()


def test_waiting_for_descriptors_costs_no_processor(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used, hard))
        with server.connect():
            server.wait_log("ccept error")
            before, began = processor_ticks(server), time.monotonic()
            time.sleep(0.5)
            spent = processor_ticks(server) - before
            assert spent < 20 * (time.monotonic() - began)
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0


def processor_ticks(server: ServerProcess) -> int:
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
