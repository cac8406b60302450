"""The composition root: builds every room from the options, starts them in order, ends them.

`App` is also what monitoring sees of the server (`server.ops.view.ServerView`) and what signals
may ask of it (`server.ops.signals.Controls`).
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from traceback import format_exc
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from config import featureflags
from config.limits import MAX_PAYLOAD_WARNING_BYTES
from config.options import SYSTEM_ACCOUNT, Options, SubjectMapping
from server.auth.authenticate import Authenticator
from server.auth.directory import Directory, Login
from server.auth.nkeys import ServerIdentity
from server.auth.passwords import CHECKS_WAITING_MAX, PasswordPool
from server.auth.permissions import shown_permissions
from server.clock import Clock, Random
from server.core._broker import Broker
from server.core._mappings import Mappings
from server.hooks import ServerHooks
from server.net._poller import Poller
from server.net.clients import ClientListener
from server.net.info import base_info
from server.net.listener import ListenError, join_host_port, listening_urls, split_host_port
from server.net.tls import TlsError, monitoring_context
from server.ops.closed import ClosedConnections
from server.ops.events import ServerEvents
from server.ops.identity import Identity
from server.ops.lameduck import LameDuck
from server.ops.logging import Logger
from server.ops.openlog import LogOpenError, reopen_log
from server.ops.pidfile import ports_file_path, write_pid_file, write_ports_file
from server.ops.services import SystemServices
from server.ops.tracing import TraceEvents
from server.version import COMPAT_VERSION, JETSTREAM_API_LEVEL, MARTLET_VERSION

if TYPE_CHECKING:
    from ssl import SSLContext

    from server.core._client import Client
    from server.jetstreaming import JetStream
    from server.net.http import HttpServer
    from server.net.tlscarrier import TlsSettings

TICK_S = 0.1
EARLY_S = 0.001  # a loop may be that much too early
TICKS_PER_SECOND = 10
# A reload was to switch it on, and could not.
JETSTREAM_OFF = {"type": "JETSTREAM", "error": "JetStream not enabled (10076)"}


class StartError(Exception):
    """The server cannot start with these options; the text is for the person who starts it."""


class ReadError(Exception):
    """The configuration cannot be read again; the text says what is wrong with it."""


class App:
    def __init__(
        self,
        options: Options,
        *,
        program: str,
        loop: asyncio.AbstractEventLoop,
        logger: Logger,
        clock: Clock,
        random: Random,
        reread: Callable[[], Options] | None = None,
    ) -> None:
        self.options = options
        self.program = program
        self.logger = logger
        self.lame_duck = False
        self._loop = loop
        self.clock = clock
        self.random = random
        self._reread = reread
        self._ended: asyncio.Future[None] = loop.create_future()
        self._stopping = False
        self._ticks = 0
        self._consumers_wake: asyncio.TimerHandle | None = None
        self._name_server()
        try:
            self._build()
        except ValueError as error:
            raise StartError(str(error)) from error

    def _name_server(self) -> None:
        random = self.random
        self.identity = ServerIdentity(random.token_bytes(32), random.token_bytes(32))
        self.server_id = self.identity.server_id
        self.server_name = self.options.server_name or self.server_id
        self.version = COMPAT_VERSION
        self.martlet_version = MARTLET_VERSION
        self.runtime = f"python{platform.python_version()}"
        self.start_wall_ns = self.config_loaded_wall_ns = self.clock.wall_ns()
        self.port = self.http_port = self.https_port = 0
        self.connect_urls: Sequence[str] = ()

    def _build(self) -> None:
        options = self.options
        info = base_info(
            server_id=self.server_id,
            server_name=self.server_name,
            xkey=self.identity.curve_public,
            host=options.host,
            port=options.port,
            max_payload=options.max_payload_bytes,
        )
        self.closed = ClosedConnections(options.max_closed_clients)
        self.broker = Broker()
        self._passwords = PasswordPool(self._loop, CHECKS_WAITING_MAX)
        self.authenticator = Authenticator(
            Directory(options), self._passwords, self.logger, self.broker.account
        )
        self.hooks = ServerHooks(
            options, info, self.authenticator, self.logger, self.random, self.closed
        )
        self.broker.hooks = self.hooks
        self.broker.turn.set_call_soon(self._loop.call_soon)
        apply_to_broker(options, self.authenticator.directory, self.broker)
        self._poller = Poller(self.broker)
        self._listener: ClientListener | None = None
        self._http: HttpServer | None = None
        self._ports_file = ""
        self.jetstream: JetStream | None = None
        identity = Identity(self)
        self._events = ServerEvents(self, identity)
        self.hooks.events = self._events
        self.hooks.traces = TraceEvents(identity)
        self.authenticator.on_admitted = self._events.connected
        self._services = SystemServices(self, self, identity, self._events)

    # Start

    async def start(self) -> None:
        """Every listener is up when this returns; ends the process where the reference does."""
        self._log_banner()
        if self.options.pid_file:
            try:
                write_pid_file(self.options.pid_file)
            except OSError as error:
                self.logger.fatal(f"Could not write pidfile: {error}")
        await self._start_monitoring()
        if self.options.jetstream.enabled:
            try:
                self._start_jetstream()
            except StartError as error:
                self.logger.fatal(str(error))
        self._services.listen()
        self._start_clients()
        self._loop.add_reader(self._poller.fileno(), self._poller.run)
        self._loop.call_later(TICK_S, self._tick)
        self.write_ports_file()
        self.logger.notice("Server is ready")

    def _start_jetstream(self) -> None:
        from server.jetstreaming import JetStream, StoreProblem, descriptors_for_connections

        try:
            self.jetstream = JetStream(
                self.options,
                self.broker,
                server_name=self.server_name,
                server_id=self.server_id,
                clock=self.clock,
                random=self.random,
                logger=self.logger,
            )
        except (StoreProblem, OSError) as error:
            raise StartError(f"Can't start JetStream: {error}") from error
        self._poller.descriptors_max = descriptors_for_connections()
        self.jetstream.engine.hub.timers.wake = self._wake_consumers
        self.jetstream.commit.ask_later = self._loop.call_later
        for descriptor in self.jetstream.descriptors:
            self._loop.add_reader(descriptor, self.jetstream.completed)
        self.hooks.info = replace(
            self.hooks.info,
            jetstream=True,
            domain=self.options.jetstream.domain,
            api_lvl=JETSTREAM_API_LEVEL,
        )

    def _restart_jetstream(self) -> None:
        """Switched on by a reload: without it, if need be, as the server serves already."""
        self.logger.notice("Restarting JetStream")
        try:
            self._start_jetstream()
        except StartError as error:
            self.logger.warn(str(error))

    def _stop_jetstream(self) -> None:
        """What was stored is durable when this returns."""
        if self.jetstream is None:
            return
        gone, self.jetstream = self.jetstream, None
        if self._consumers_wake is not None:
            self._consumers_wake.cancel()
            self._consumers_wake = None
        gone.engine.hub.timers.wake = None
        for descriptor in gone.descriptors:
            self._loop.remove_reader(descriptor)
        self._poller.descriptors_max = 0
        self.hooks.info = replace(self.hooks.info, jetstream=False, domain="", api_lvl=0)
        gone.close()

    def _log_banner(self) -> None:
        options, notice = self.options, self.logger.notice
        # Whatever the command is called: log parsers know a start by this line.
        notice("Starting nats-server")
        notice(f"  Version:  {COMPAT_VERSION}")
        notice("  Git:      [not set]")
        notice(f"  Martlet:  {MARTLET_VERSION}")
        notice(f"  Name:     {self.server_name}")
        if options.jetstream.enabled:
            from server.jetstream.shorthash import short_hash

            notice(f"  Node:     {short_hash(self.server_name)}")
        notice(f"  ID:       {self.server_id}")
        for line in featureflags.told(options.feature_flags):
            notice(line)
        if self.authenticator.directory.has_plain_passwords():
            self.logger.warn("Plaintext passwords detected, use nkeys or bcrypt")
        if options.config_file:
            digest = f"({options.config_digest})" if options.config_digest else ""
            notice(f"Using configuration file: {options.config_file} {digest}")
        if options.max_payload_bytes > MAX_PAYLOAD_WARNING_BYTES:
            self.logger.warn(
                "Maximum payloads over 8.00 MB are generally discouraged and could lead to poor "
                "performance"
            )

    async def _start_monitoring(self) -> None:
        http = self.options.http
        if not http.port and not http.tls_port:
            return
        from server.net.http import HttpServer
        from server.ops.monitor import Monitor

        monitor = Monitor(self, self.logger.warn)
        self._http = HttpServer(monitor.handle, self.logger.error)
        wanted = max(http.tls_port or http.port, 0)
        host = http.host or self.options.host
        try:
            port = await self._http.listen(host, wanted, monitoring_context(self.options))
        except (ListenError, TlsError) as error:
            self.logger.fatal(f"Can't start monitoring: {error}")
        if http.tls_port:
            self.https_port = port
        else:
            self.http_port = port
        kind = "https" if http.tls_port else "http"
        self.logger.notice(f"Starting {kind} monitor on {join_host_port(host, port)}")

    def _start_clients(self) -> None:
        options = self.options
        try:
            self._listener = ClientListener(
                self._loop,
                self.broker,
                self._poller,
                options,
                self.clock,
                self.logger,
                self.hooks.first_info,
            )
        except ListenError as error:
            self.logger.fatal(f"Error listening on port: {error}")
        except TlsError as error:
            self.logger.fatal(str(error))
        self.port = self._listener.port
        where = join_host_port(options.host, self.port)
        self.logger.notice(f"Listening for client connections on {where}")
        if options.proxy_protocol:
            self.logger.notice("PROXY protocol enabled for client connections")
        self._log_tls()
        self._tell_address()

    def _tell_address(self) -> None:
        """INFO's host and port: what is advertised, else where we listen."""
        host, port = self.options.host, self.port
        if self.options.client_advertise:
            host, port = split_host_port(self.options.client_advertise, port)
        self.hooks.info = replace(self.hooks.info, host=host, port=port)

    def _log_tls(self) -> None:
        tls = self.options.tls
        if tls is None:
            return
        first_only = tls.handshake_first and not tls.handshake_first_fallback_ns
        available = self.options.allow_non_tls and not first_only
        self.logger.notice(f"TLS {'available' if available else 'required'} for client connections")
        if first_only:
            self.logger.warn(
                'Clients that are not using "TLS Handshake First" option will fail to connect'
            )

    def write_ports_file(self) -> None:
        options = self.options
        if not options.ports_file_dir:
            return
        tls_required = options.tls is not None and not options.allow_non_tls
        urls = {"nats": listening_urls("tls" if tls_required else "nats", options.host, self.port)}
        if self._http is not None:
            scheme = "https" if self.https_port else "http"
            host = options.http.host or options.host
            urls["monitoring"] = listening_urls(scheme, host, self.https_port or self.http_port)
        self._ports_file = ports_file_path(options.ports_file_dir, self.program)
        try:
            write_ports_file(self._ports_file, urls)
        except OSError as error:
            self.logger.error(f"Error writing ports file ({self._ports_file}): {error}")
            self._ports_file = ""

    def _wake_consumers(self, at_ns: int) -> None:
        """Something of a consumer is due then: earlier than the next tick may be."""
        assert self.jetstream is not None
        delay_ns = max(at_ns - self.broker.now_ns(), 0)
        if self._consumers_wake is not None:
            self._consumers_wake.cancel()
        run_timers = self.jetstream.engine.hub.run_timers
        self._consumers_wake = self._loop.call_later(delay_ns / 1e9 + EARLY_S, run_timers)

    def _tick(self) -> None:
        if self._stopping:
            return
        self._loop.call_later(TICK_S, self._tick)
        self.broker.tick(self.clock.monotonic_ns())
        if self.jetstream is not None:
            self.jetstream.tick()
        self._events.tick()
        self._ticks += 1
        if self._ticks % TICKS_PER_SECOND == 0 and self._listener is not None:
            self._listener.report_throttled()

    # What signals ask for

    def shut_down(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._events.shutdown()
        self.logger.notice("Initiating Shutdown...")
        if self._listener is not None:
            self._listener.stop()
        self.broker.close_all("Server Shutdown")
        self._ended.set_result(None)

    def enter_lame_duck(self) -> None:
        if self._stopping or self.lame_duck:
            return
        self.logger.notice("Entering lame duck mode, stop accepting new clients")
        self.lame_duck = self.broker.lame_duck = True
        self._events.lame_duck()
        if self._listener is not None:
            self._listener.stop()
        clients = list(self.broker.clients.values())
        if not clients:
            self.shut_down()
            return
        self.hooks.info = replace(self.hooks.info, ldm=True, connect_urls=[])
        self.hooks.send_info_to_all()
        self.hooks.info = replace(self.hooks.info, ldm=False)
        LameDuck(
            self._loop,
            self.random,
            clients,
            duration_ns=self.options.lame_duck_duration_ns,
            grace_ns=self.options.lame_duck_grace_period_ns,
            announce=self.logger.notice,
            done=self.shut_down,
        )

    def reload(self) -> None:
        self.try_reload()

    def try_reload(self) -> str:
        """Reads the configuration again; what was wrong with it, or nothing."""
        from config.reload import ReloadError
        from server.reloading import reload

        try:
            if self._reread is None:
                raise ReloadError(
                    "can only reload config when a file is provided using -c or --config"
                )
            reload(self, self._reread())
        except (ReloadError, ReadError) as error:
            self.logger.error(f"Failed to reload server configuration: {error}")
            return str(error)
        digest = self.options.config_digest
        self.logger.notice(f"Reloaded server configuration ({digest})")
        return ""

    # What the system account asks for

    def send_lame_duck(self, client: Client) -> bool:
        if client not in self.hooks.informed:
            return False
        self.hooks.send_lame_duck(client)
        return True

    def permissions_of(self, client: Client) -> Mapping[str, Any] | None:
        return shown_permissions(client.auth.raw) if isinstance(client.auth, Login) else None

    def apply(self, directory: Directory) -> None:
        """Makes every room follow `options`, which have just been replaced."""
        self.authenticator.directory = directory
        self.hooks.apply(self.options)
        apply_to_broker(self.options, directory, self.broker)
        self.broker.apply_limits()
        self._tell_address()
        self._services.listen()
        self._apply_jetstream()

    def _apply_jetstream(self) -> None:
        """A reload is never left half way: behind this, who may no longer be connected goes."""
        try:
            if not self.options.jetstream.enabled:
                self._stop_jetstream()
            elif self.jetstream is None:
                self._restart_jetstream()
            else:
                self.jetstream.apply(self.options)
        except Exception:
            self.logger.error(f"JetStream did not follow the reload:\n{format_exc()}".rstrip())

    def forget_account(self, name: str) -> None:
        """The configuration has it no more, and nobody is connected to it."""
        self._services.forget(name)
        if self.jetstream is not None:
            self.jetstream.forget_account(name)
        self.broker.forget_account(name)

    def replace_tls(self, settings: TlsSettings | None, monitoring: SSLContext | None) -> None:
        """For clients and for monitoring; the ports and who speaks TLS on them stay."""
        if self._listener is not None:
            self._listener.replace_tls(settings)
        if self._http is not None and monitoring is not None:
            self._http.replace_tls(monitoring)

    def reopen_log(self) -> None:
        if not self.options.log.file:
            self.logger.notice("File log re-open ignored, not a file logger")
            return
        try:
            reopen_log(self.logger, self.options.log, self.clock, self.program)
        except LogOpenError as error:
            self.logger.error(str(error))
            return
        self.logger.notice("File log re-opened")

    # The end

    async def wait_ended(self) -> None:
        """Until `shut_down`; then puts away what is left."""
        await self._ended
        if self._http is not None:
            await self._http.close()
        # One more round of the loop lets TLS connections say goodbye.
        await asyncio.sleep(0)
        self._loop.remove_reader(self._poller.fileno())
        try:
            self._stop_jetstream()
        finally:
            self._poller.close()
            self._passwords.close()
            self.remove_ports_file()
            self.logger.notice("Server Exiting..")
            self.logger.close()

    def remove_ports_file(self) -> None:
        if not self._ports_file:
            return
        try:
            Path(self._ports_file).unlink()
        except OSError as error:
            self.logger.error(f"Error cleaning up ports file {self._ports_file}: {error}")
        self._ports_file = ""

    # What monitoring sees

    def wall_ns(self) -> int:
        return self.clock.wall_ns()

    @property
    def listening(self) -> bool:
        return self._listener is not None and self._listener.is_open

    def health_errors(self) -> Sequence[Mapping[str, str]]:
        if self.jetstream is None:
            return (JETSTREAM_OFF,) if self.options.jetstream.enabled else ()
        if self.jetstream.failure is not None:
            return [{"type": "JETSTREAM", "error": f"JetStream is down: {self.jetstream.failure}"}]
        found = [
            stream_error(account, name, "could not be recovered")
            for account, name in self.jetstream.stores.locked
        ]
        for account, name, why in self.jetstream.stopped():
            if account:
                found.append(stream_error(account, name, f"is down: {why}"))
            else:
                text = f"JetStream keeps no states of consumers: {why}"
                found.append({"type": "JETSTREAM", "error": text})
        return found

    @property
    def tls_not_after(self) -> str:
        return self._listener.tls_not_after if self._listener is not None else ""


def stream_error(account: str, stream: str, what: str) -> dict[str, str]:
    """What healthz says of one stream."""
    text = f"JetStream stream '{account} > {stream}' {what}"
    return {"type": "STREAM", "account": account, "stream": stream, "error": text}


def apply_to_broker(options: Options, directory: Directory, broker: Broker) -> None:
    """Every value of the options that the data path reads."""
    broker.max_control_line = options.max_control_line_bytes
    broker.max_payload = options.max_payload_bytes
    broker.max_pending = options.max_pending_bytes
    broker.max_subs = options.max_subscriptions
    broker.max_sub_tokens = options.max_subject_tokens
    broker.max_connections = options.max_connections
    broker.ping_interval_ns = options.ping_interval_ns
    broker.ping_max = options.max_pings_out
    broker.write_deadline_ns = options.write_deadline_ns
    broker.write_retry = options.write_timeout == "retry"
    broker.auth_timeout_ns = options.auth.timeout_ns
    broker.headers = not options.no_header_support
    broker.no_fast_producer_stall = options.no_fast_producer_stall
    broker.auth_required = directory.required
    broker.trace = options.log.trace
    broker.trace_headers_only = options.log.trace_headers
    broker.max_traced_msg_len = options.log.max_traced_message_bytes
    broker.sublist_cache = not options.disable_sublist_cache
    for account in broker.accounts.values():
        account.sublist.cache = broker.sublist_cache
    if options.system_account:
        broker.system_account = broker.account(options.system_account)
        if options.system_account != SYSTEM_ACCOUNT:
            broker.accounts.pop(SYSTEM_ACCOUNT, None)
    for wanted in options.accounts:
        account = broker.account(wanted.name)
        account.max_connections = wanted.max_connections
        account.max_subscriptions = wanted.max_subscriptions
        account.max_payload = wanted.max_payload_bytes
        account.trace_parents(wanted.trace_destination, wanted.trace_percent)
        account.mappings = compiled_mappings(wanted.mappings, broker)
    broker.default_account.mappings = compiled_mappings(options.mappings, broker)


def compiled_mappings(wanted: Sequence[SubjectMapping], broker: Broker) -> Mappings | None:
    if not wanted:
        return None
    mappings = Mappings(lambda count: int(broker.chance() * count))
    for mapping in wanted:
        by_cluster: dict[str, list[tuple[str, int]]] = {}
        for each in mapping.destinations:
            by_cluster.setdefault(each.cluster, []).append((each.subject, each.percent))
        mappings.add(mapping.source, by_cluster)
    return mappings
