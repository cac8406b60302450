"""A small HTTP/1.1 server over httptools: requests in, a handler's answers out.

In: bytes of a connection. Out: a `Response` for each request, in order. Keep-alive and pipelining
work; bodies are read and dropped. Bounds: `MAX_HEAD_BYTES` of request line and headers, then 431;
`MAX_BODY_BYTES` of body, then 413; `MAX_CONNECTIONS`, then the connection is refused;
`IDLE_TIMEOUT_S` without a request, then it is closed, and as long without taking anything of an
answer, then it is cut off. A handler that raises answers 500 and is
logged; it never takes the server down.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl, unquote

import httptools

from server.net.listener import listen

BACKLOG = 256
MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 1024 * 1024
MAX_CONNECTIONS = 1024
IDLE_TIMEOUT_S = 60.0
# A peer that does not read its answers: past this much unsent, its requests are not read either.
MAX_UNSENT_BYTES = 1024 * 1024


@dataclass(slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]  # the first value of each name
    headers: Mapping[str, str]  # names in lower case


@dataclass(slots=True)
class Response:
    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Response]
Log = Callable[[str], None]


class HttpServer:
    """Listens on one address until `close`."""

    def __init__(self, handler: Handler, log_error: Log) -> None:
        self._handler = handler
        self._log_error = log_error
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._serving = asyncio.Lock()
        self._changing: asyncio.Task[None] | None = None
        self._connections: set[_Connection] = set()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Starts to listen and returns the real port. ListenError when the address is not to be
        had."""
        self._socket = listen(host, port)
        await self._serve(tls)
        return int(self._socket.getsockname()[1])

    async def _serve(self, tls: ssl.SSLContext | None) -> None:
        """Accepts with this context instead of the last one, on the same socket."""
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        async with self._serving:
            server = await loop.create_server(
                lambda: _Connection(self, loop), sock=self._socket.dup(), ssl=tls, backlog=BACKLOG
            )
            if self._server is not None:
                self._server.close()
            self._server = server

    def replace_tls(self, tls: ssl.SSLContext) -> None:
        """New connections get this context; present ones go on as they are."""
        self._changing = asyncio.get_running_loop().create_task(self._change(tls))

    async def _change(self, tls: ssl.SSLContext) -> None:
        try:
            await self._serve(tls)
        except OSError as error:
            self._log_error(f"Monitoring goes on with its old certificate: {error}")

    async def close(self) -> None:
        if self._changing is not None:
            await self._changing
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        for connection in list(self._connections):
            connection.drop()

    def answer(self, request: Request) -> Response:
        try:
            return self._handler(request)
        except Exception as error:
            self._log_error(f"HTTP {request.method} {request.path} failed: {error!r}")
            return Response(b"internal error", status=500)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def admit(self, connection: _Connection) -> bool:
        if len(self._connections) >= MAX_CONNECTIONS:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)


class _Connection(asyncio.Protocol):
    """One HTTP connection; the `on_*` methods are httptools' callbacks."""

    def __init__(self, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0  # when the idle time began
        self._start_request()

    def _start_request(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._in_head = True
        self._head_bytes = 0
        self._body_bytes = 0

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not declared as asyncio's, but have all their methods.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        if not self._server.admit(self):
            transport.abort()
            return
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.forget(self)
        if self._idle is not None:
            self._idle.cancel()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400)
        self._head_bytes += len(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431)

    # httptools' callbacks

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._in_head = False

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            self._refuse(413)

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode("latin-1")
        path, _, query = self._target.partition(b"?")
        values = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        request = Request(
            method,
            unquote(path.decode("latin-1")),
            dict(reversed(values)),
            self._headers,
        )
        keep_alive = self._parser.should_keep_alive()
        self._start_request()
        self._send(self._server.answer(request), method != "HEAD", keep_alive)
        self._wait_for_request()

    # sending and ending

    def _send(self, response: Response, with_body: bool, keep_alive: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in response.headers.items()]
        lines.append(f"Content-Type: {response.content_type}")
        lines.append(f"Date: {formatdate(usegmt=True)}")
        lines.append(f"Content-Length: {len(response.body)}")
        if not keep_alive:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._transport.write(head + response.body if with_body else head)
        if not keep_alive:
            self._transport.close()

    def _refuse(self, status: int) -> None:
        self._send(Response(HTTPStatus(status).phrase.encode(), status), True, False)

    def _wait_for_request(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._transport is not None:
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._idle = self._loop.call_later(IDLE_TIMEOUT_S, self._end_idle)

    def _end_idle(self) -> None:
        """Closed in good order only if all is sent: what nobody reads would keep it for ever."""
        if self._transport is None:
            return
        if 0 < self._transport.get_write_buffer_size() < self._unsent_bytes:
            self._wait_for_request()
        else:
            self.drop()

    def drop(self) -> None:
        transport = self._transport
        if transport is None:
            return
        if transport.is_closing() or transport.get_write_buffer_size():
            transport.abort()
        else:
            transport.close()
