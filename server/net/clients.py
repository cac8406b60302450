"""The listener for clients: plain connections stay in the poller, TLS ones go to their carriers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from config.options import Options
from server.clock import Clock
from server.core._broker import Broker
from server.core._client import Client
from server.net import proxyheader
from server.net._poller import Poller
from server.net.listener import listen
from server.net.tls import read_certificate, server_context
from server.net.tlscarrier import Log, TlsAcceptor, TlsSettings

SECOND_NS = 1_000_000_000


class ClientListener:
    """Accepts until `stop`. `port` is the real one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        poller: Poller,
        options: Options,
        clock: Clock,
        log: Log,
        info_json: Callable[[Client], bytes],
    ) -> None:
        self._poller = poller
        self._log = log

        preface = proxyheader.read_header if options.proxy_protocol else None
        self._preface = preface

        def make_acceptor(settings: TlsSettings) -> TlsAcceptor:
            within_s = proxyheader.PREFACE_NS / SECOND_NS
            return TlsAcceptor(
                loop,
                broker,
                settings,
                clock,
                log,
                info_json,
                preface,
                within_s,
                lambda: poller.descriptors_max,
            )

        self._make_acceptor = make_acceptor
        self._acceptor: TlsAcceptor | None = None
        # Before the socket: a wrong certificate must not leave a port behind.
        settings = tls_settings(options)
        self._socket: socket.socket | None = listen(options.host, options.port)
        self.port: int = self._socket.getsockname()[1]
        self._serve(settings)

    def _serve(self, settings: TlsSettings | None) -> None:
        assert self._socket is not None
        if settings is None:
            self._acceptor = None
            self._poller.listen(
                self._socket.fileno(), preface=self._preface, preface_ns=proxyheader.PREFACE_NS
            )
        else:
            self._acceptor = self._make_acceptor(settings)
            self._poller.listen(self._socket.fileno(), self._acceptor.on_accept)

    def replace_tls(self, settings: TlsSettings | None) -> None:
        """New connections get these; present ones go on as they are."""
        if self._socket is None:
            return
        if settings is not None and self._acceptor is not None:
            self._acceptor.settings = settings
        else:
            self._poller.unlisten(self._socket.fileno())
            self._serve(settings)

    def report_throttled(self) -> None:
        """To be called once a second."""
        count = self._acceptor.rate.take_refused() if self._acceptor is not None else 0
        if count:
            self._log.warn(f"Rejected {count} connections due to TLS rate limiting")

    @property
    def tls_not_after(self) -> str:
        return self._acceptor.settings.not_after if self._acceptor is not None else ""

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def stop(self) -> None:
        if self._socket is not None:
            self._poller.unlisten(self._socket.fileno())
            self._socket.close()
            self._socket = None


def tls_settings(options: Options) -> TlsSettings | None:
    """Reads certificates; raises TlsError when one is not good."""
    tls = options.tls
    if tls is None:
        return None
    return TlsSettings(
        server_context(tls),
        timeout_s=tls.timeout_ns / SECOND_NS,
        first=tls.handshake_first,
        fallback_s=tls.handshake_first_fallback_ns / SECOND_NS,
        allow_non_tls=options.allow_non_tls,
        pinned=tls.pinned_certs,
        rate_limit=tls.connection_rate_limit,
        certificate=read_certificate(tls.certificates[0].cert_file),
    )
