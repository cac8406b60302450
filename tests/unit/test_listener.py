"""Listening sockets and addresses."""

from __future__ import annotations

import socket

import pytest

from server.net.listener import (
    ListenError,
    interface_addresses,
    join_host_port,
    listen,
    listening_urls,
    split_host_port,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.example", ("a.example", 4222)),
        ("a.example:5", ("a.example", 5)),
        ("a.example:-1", ("a.example", 4222)),
        ("1.2.3.4:0", ("1.2.3.4", 4222)),
        ("[::1]", ("::1", 4222)),
        ("[::1]:7", ("::1", 7)),
    ],
)
def test_an_address_may_lack_its_port(text: str, expected: tuple[str, int]) -> None:
    assert split_host_port(text, 4222) == expected


def test_addresses_of_the_newer_family_get_brackets() -> None:
    assert join_host_port("::1", 5) == "[::1]:5"
    assert join_host_port("1.2.3.4", 5) == "1.2.3.4:5"


@pytest.mark.feature("1-020")
def test_minus_one_is_a_free_port() -> None:
    with listen("127.0.0.1", -1) as one, listen("127.0.0.1", -1) as two:
        assert one.getsockname()[1] != two.getsockname()[1]


def test_a_wildcard_serves_both_families() -> None:
    with listen("0.0.0.0", -1) as sock:
        port = sock.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=30).close()


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", -1) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port}, .*address already in use"):
            listen("127.0.0.1", port)


@pytest.mark.feature("2-033")
def test_a_wildcard_stands_for_every_address_of_the_machine() -> None:
    found = interface_addresses()
    assert "127.0.0.1" in found
    urls = listening_urls("nats", "0.0.0.0", 5)
    assert urls == [f"nats://{join_host_port(address, 5)}" for address in found]
    assert listening_urls("tls", "localhost", 5) == ["tls://127.0.0.1:5"]
