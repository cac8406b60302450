"""The HTTP server over real loopback sockets, driven with raw bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from server.net import http
from server.net.http import HttpServer, Request, Response

DEADLINE_S = 30.0


def with_server(
    handler: Callable[[Request], Response],
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> list[str]:
    """Runs `talk` on one connection to a server with `handler`; returns what was logged."""
    logged: list[str] = []

    async def run() -> None:
        server = HttpServer(handler, logged.append)
        port = await server.listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.wait_for(talk(reader, writer), DEADLINE_S)
        finally:
            writer.close()
            await server.close()

    asyncio.run(run())
    return logged


def echo(request: Request) -> Response:
    return Response(f"{request.method} {request.path} {dict(request.query)}".encode())


async def one_answer(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(
        int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length")
    )
    return head.split("\r\n")[0], await reader.readexactly(length)


def test_answers_pipelined_requests_in_order_and_keeps_the_connection() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /a?x=1&x=2&y=%20 HTTP/1.1\r\nHost: h\r\n\r\n")
        writer.write(b"POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
        writer.write(b"GET /c%2Fd HTTP/1.1\r\nHost: h\r\n\r\n")
        assert await one_answer(reader) == ("HTTP/1.1 200 OK", b"GET /a {'y': ' ', 'x': '1'}")
        assert await one_answer(reader) == ("HTTP/1.1 200 OK", b"POST /b {}")
        assert await one_answer(reader) == ("HTTP/1.1 200 OK", b"GET /c/d {}")

    with_server(echo, talk)


def test_closes_when_the_peer_asks_for_it() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Connection: close" in answer

    with_server(echo, talk)


def test_head_has_the_length_and_no_body() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HEAD / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert b"Content-Length: 9" in head
        assert body == b""

    with_server(lambda _: Response(b"123456789"), talk)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * http.MAX_HEAD_BYTES, b"431"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n"
            + b"b" * (http.MAX_BODY_BYTES + 70_000),
            b"413",
        ),
    ],
)
def test_refuses_what_is_malformed_or_too_large_and_closes(sent: bytes, status: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        line = await reader.readline()
        assert line.split()[1] == status

    with_server(echo, talk)


def test_a_failing_handler_answers_500_is_logged_and_the_next_request_works() -> None:
    def handler(request: Request) -> Response:
        if request.path == "/bad":
            raise RuntimeError("broken page")
        return Response(b"fine")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /bad HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await one_answer(reader))[0] == "HTTP/1.1 500 Internal Server Error"
        writer.write(b"GET /good HTTP/1.1\r\nHost: h\r\n\r\n")
        assert await one_answer(reader) == ("HTTP/1.1 200 OK", b"fine")

    assert with_server(handler, talk) == ["HTTP GET /bad failed: RuntimeError('broken page')"]


def test_connections_beyond_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 1)

    async def run() -> None:
        server = HttpServer(echo, print)
        port = await server.listen("127.0.0.1", 0)
        first_reader, first = await asyncio.open_connection("127.0.0.1", port)
        first.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await one_answer(first_reader)
        second_reader, second = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            second.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            await asyncio.wait_for(one_answer(second_reader), DEADLINE_S)
        first.close()
        second.close()
        await server.close()

    asyncio.run(run())


@pytest.mark.feature("5-001")
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_wildcard_listens_on_both_families(host: str) -> None:
    async def run() -> None:
        server = HttpServer(echo, print)
        port = await server.listen(host, 0)
        for address in ("127.0.0.1", "::1"):
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await asyncio.wait_for(one_answer(reader), DEADLINE_S))[0] == "HTTP/1.1 200 OK"
            writer.close()
        await server.close()

    asyncio.run(run())


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_TIMEOUT_S", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""

    with_server(echo, talk)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_peer_that_never_reads_its_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, version: bytes
) -> None:
    monkeypatch.setattr(http, "IDLE_TIMEOUT_S", 0.05)

    async def run() -> None:
        server = HttpServer(lambda _: Response(b"x" * 32_000_000), [].append)
        port = await server.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"GET / HTTP/%s\r\nHost: h\r\n\r\n" % version)
            async with asyncio.timeout(DEADLINE_S):
                while not server.connection_count:
                    await asyncio.sleep(0)
                while server.connection_count:
                    await asyncio.sleep(0.01)
        await server.close()

    asyncio.run(run())


def test_a_peer_that_reads_slowly_gets_all_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_TIMEOUT_S", 0.2)
    size = 32_000_000

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        end_s = asyncio.get_running_loop().time() + 0.6
        got = 0
        while part := await reader.read(256 * 1024):
            got += len(part)
            if asyncio.get_running_loop().time() < end_s:
                await asyncio.sleep(0.02)
        assert got > size

    with_server(lambda _: Response(b"x" * size), talk)
