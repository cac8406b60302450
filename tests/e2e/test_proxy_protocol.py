"""The PROXY protocol ahead of TLS, and who takes too long to say it. Plain connections are played
by the scripts of tests/differential."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from server.net.proxyheader import read_header
from tests.e2e.server import RawClient, ServerProcess
from tests.e2e.test_tls import Pki
from tests.unit.memory_client import SECOND_NS, RecordingHooks, World

LINE = b"PROXY TCP4 192.0.2.7 198.51.100.1 1234 4222\r\n"
BINARY = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c" + b"\xc0\0\x02\x07\1\2\3\4\4\xd2\x10~"
PROXIED = "proxy_protocol: true\n"


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


def send_in_pieces(client: RawClient, data: bytes) -> None:
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(0, len(data), 5):
        client.send(data[at : at + 5])


@pytest.mark.feature("4-084", "4-011", "2-040")
@pytest.mark.parametrize("header", [LINE, BINARY])
def test_it_comes_ahead_of_the_handshake(tmp_path: Path, pki: Pki, header: bytes) -> None:
    config = pki.config(outside=PROXIED)
    with ServerProcess(tmp_path, "-D", config=config) as server, server.connect() as client:
        server.wait_log("PROXY protocol enabled for client connections")
        assert "client_ip" not in client.info()
        send_in_pieces(client, header)
        pki.upgrade(client)
        client.connect_with(protocol=1)
        client.expect("PONG")
        assert client.info()["client_ip"] == "192.0.2.7"
        server.wait_log("192.0.2.7:1234 - cid:.*TLS handshake complete")


@pytest.mark.feature("4-084", "4-012")
def test_with_the_handshake_first_the_first_info_knows_the_peer(tmp_path: Path, pki: Pki) -> None:
    config = pki.config("handshake_first: true", outside=PROXIED)
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.send(LINE)
        pki.upgrade(client)
        assert client.info()["client_ip"] == "192.0.2.7"


@pytest.mark.feature("4-084", "4-012")
@pytest.mark.parametrize("header", [LINE, BINARY])
def test_a_header_is_no_sign_of_the_handshake(tmp_path: Path, pki: Pki, header: bytes) -> None:
    config = pki.config("handshake_first: auto", outside=PROXIED)
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.send(header)
        client.info()
        pki.upgrade(client)
        client.connect_with(protocol=1)
        client.expect("PONG")
        assert client.info()["client_ip"] == "192.0.2.7"


@pytest.mark.feature("4-084", "4-012")
@pytest.mark.parametrize("header", [b"", LINE, BINARY])
def test_with_a_fallback_the_handshake_may_follow_at_once(
    tmp_path: Path, pki: Pki, header: bytes
) -> None:
    config = pki.config('handshake_first: "50s"', outside=PROXIED)
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        send_in_pieces(client, header)
        pki.upgrade(client)
        assert client.info()["client_ip"] == ("192.0.2.7" if header else "127.0.0.1")
        client.connect_with()
        client.expect("PONG")


@pytest.mark.feature("4-084", "4-012")
def test_with_a_fallback_a_wrong_header_ends_the_connection(tmp_path: Path, pki: Pki) -> None:
    config = pki.config('handshake_first: "50s"', outside=PROXIED)
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.send(b"PROXY what\r\n")
        assert client.closed()
        server.wait_log("Error reading PROXY protocol header from 127.0.0.1:.*invalid v1 format")


@pytest.mark.feature("4-084")
@pytest.mark.parametrize("header", [b"", LINE, b"PROXY UNKNOWN\r\n"])
def test_beside_tls_plain_clients_are_served(tmp_path: Path, pki: Pki, header: bytes) -> None:
    config = pki.config(outside=PROXIED + "allow_non_tls: true")
    with ServerProcess(tmp_path, config=config) as server:
        with server.connect() as client:
            client.info()
            client.send(header)
            client.connect_with(protocol=1)
            client.expect("PONG")
            ip = "192.0.2.7" if header == LINE else "127.0.0.1"
            assert client.info()["client_ip"] == ip
        with server.connect() as client:
            client.info()
            client.send(header)
            pki.upgrade(client)
            client.connect_with()
            client.expect("PONG")


@pytest.mark.feature("4-084")
def test_a_wrong_header_ends_a_connection_that_would_speak_tls(tmp_path: Path, pki: Pki) -> None:
    config = pki.config(outside=PROXIED)
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.info()
        client.send(b"PROXY what\r\n")
        assert client.closed()
        server.wait_log("Error reading PROXY protocol header from 127.0.0.1:.*invalid v1 format")


def test_whoever_takes_too_long_is_closed() -> None:
    hooks = RecordingHooks()
    world = World(hooks)
    client = world.client()
    client.server_side.expect_preface(read_header, 5 * SECOND_NS)
    client.say(b"PROXY ")
    world.pass_time(4.9)
    assert not client.transport_closed
    world.pass_time(0.2)
    assert client.transport_closed
    assert hooks.closed == [(1, "Protocol Violation")]


@pytest.mark.feature("4-084")
def test_the_time_for_connect_begins_behind_it() -> None:
    hooks = RecordingHooks()
    world = World(hooks)
    world.broker.auth_required = True
    client = world.client()
    client.server_side.expect_preface(read_header, 5 * SECOND_NS)
    world.pass_time(4)
    assert client.say(LINE) == b""
    world.pass_time(1.5)
    assert not client.transport_closed
    world.pass_time(1)
    assert hooks.closed == [(1, "Authentication Timeout")]
