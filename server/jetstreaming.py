"""Starts JetStream for the process: its limits from the machine, its banner, engine and API."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from server.jetstream._commit import LocalCommit
from server.jetstream._ingest import StreamSink
from server.jetstream.api.answers import consumer_info, stream_info
from server.jetstream.api.dispatch import Api
from server.jetstream.diskstores import DiskStores
from server.jetstream.engine import Engine
from server.jetstream.ingest import Ingests
from server.jetstream.recoverylog import RecoveryLog
from server.jetstream.stream import Stream
from server.ops.pressure import MemoryPressure, pressure_file
from server.version import JETSTREAM_API_LEVEL
from storage.fs import NotUsable, open_files_allowed
from storage.keys import KeyProblem, ServerKeys

if TYPE_CHECKING:
    from config.options import JetStreamOptions, Options
    from server.clock import Clock, Random
    from server.core._broker import Broker
    from server.jetstream.consumer import Consumer
    from server.ops.logging import Logger

MEMORY_SHARE = (3, 4)  # of the machine's, where nothing is configured
STORE_FOLDER = "jetstream"
UNITS = "KMGTPE"
UINT64_MAX = 2**64 - 1
MAINTENANCE_NS = 1_000_000_000
CATCH_UP_NS = 800_000_000  # each stream writes to its block then, if there was no reason earlier
SLICE_GAP_S = 0.001
DESCRIPTORS_KEPT = 64  # logs, pipes, monitoring, a reload's files
CIPHER_TITLES = {"chacha": "ChaCha20-Poly1305", "aes": "AES-GCM"}


def server_keys(options: JetStreamOptions) -> ServerKeys | None:
    """What encrypts the store; None: nothing does."""
    if not options.encryption_key:
        return None
    return ServerKeys(
        options.encryption_key.reveal(),
        options.previous_encryption_key.reveal(),
        options.cipher or "chacha",
    )


class StoreProblem(Exception):
    """The store directory cannot be opened; the text says why."""


def open_stores(path: Path, options: JetStreamOptions, log: RecoveryLog) -> DiskStores:
    try:
        return DiskStores(
            path,
            durable=options.sync_always,
            keys=server_keys(options),
            block_compression=options.block_compression,
            loaded=log.loaded,
        )
    except (OSError, NotUsable, KeyProblem) as error:
        raise StoreProblem(str(error)) from error


class JetStream:
    """The running engine and its API, and what monitoring shows of them."""

    def __init__(
        self,
        options: Options,
        broker: Broker,
        *,
        server_name: str,
        server_id: str,
        clock: Clock,
        random: Random,
        logger: Logger,
    ) -> None:
        self._logger = logger
        self.store_dir = store_directory(options.jetstream)
        logger.notice("Starting JetStream")
        if not options.jetstream.store_dir:
            logger.warn("Temporary storage directory used, data could be lost on system reboot")
        settled = self._settled(options)
        self._log_banner(settled.jetstream)
        started_ns = clock.monotonic_ns()
        self._clock = clock
        self._runs_again = False
        self._maintained_ns = self._synced_ns = self._caught_up_ns = started_ns
        self._pressure = MemoryPressure(pressure_file(), started_ns)
        # What was made by then goes again when a later part of the start fails.
        with ExitStack() as made:
            log = RecoveryLog(clock, logger.notice, logger.warn)
            self.stores = open_stores(Path(self.store_dir), settled.jetstream, log)
            made.callback(self.stores.close)
            self._open_commit(broker, settled)
            made.callback(self.commit.close)
            self.engine = self._engine(broker, settled, server_name, random)
            made.callback(self.engine.close)
            advisories = self.engine.advisories
            self.commit.on_failure = lambda: advisories.out_of_storage(server_id)
            self.api = Api(self.engine)
            made.callback(self.api.close)
            self._recover(log)
            self._made = made.pop_all()
        took_ms = (clock.monotonic_ns() - started_ns) / 1e6
        logger.notice(f"Took {took_ms:.3f}ms to start JetStream")

    def _open_commit(self, broker: Broker, settled: Options) -> None:
        lazy = not settled.jetstream.sync_always
        self.commit = LocalCommit(broker.turn, self.stores.directory, self._log, lazy=lazy)
        self.stores.book.attach(self.commit)
        self.ingests = Ingests(self.commit, settled.max_payload_bytes)

    def _engine(self, broker: Broker, settled: Options, server_name: str, random: Random) -> Engine:
        return Engine(
            broker,
            settled,
            server_name=server_name,
            clock=self._clock,
            random=random,
            stores=self.stores,
            open_ingest=self.ingests.open,
            warn=self._logger.warn,
            when_settled=self.commit.when_settled,
        )

    def _recover(self, log: RecoveryLog) -> None:
        self.engine.recover()
        log.finish(self.engine.streams(), self.stores.directory.damage)
        self._log_unopened()
        self.api.listen()

    def _settled(self, options: Options) -> Options:
        return replace(options, jetstream=with_machine_limits(options.jetstream, self.store_dir))

    def _log_banner(self, options: JetStreamOptions) -> None:
        notice = self._logger.notice
        notice("---------------- JETSTREAM ----------------")
        if options.strict:
            notice("  Strict:          true")
        notice(f"  Max Memory:      {friendly_bytes(options.max_memory_bytes)}")
        notice(f"  Max Storage:     {friendly_bytes(options.max_store_bytes)}")
        notice(f'  Store Directory: "{self.store_dir}"')
        if options.encryption_key:
            notice(f"  Encryption:      {CIPHER_TITLES[options.cipher or 'chacha']}")
        if options.domain:
            notice(f"  Domain:          {options.domain}")
        notice(f"  API Level:       {JETSTREAM_API_LEVEL}")
        notice("-------------------------------------------")

    def apply(self, options: Options) -> None:
        """Follows a reload."""
        self.engine.apply(self._settled(options))
        self.ingests.usages.follow(self.engine)
        self.api.listen()

    def forget_account(self, name: str) -> None:
        self.api.forget(name)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What becomes readable when the disk has finished something: call `completed` then."""
        directory = self.stores.directory
        return (directory.log_event_fd, directory.block_event_fd)

    @property
    def failure(self) -> str | None:
        """Why nothing is stored on disk any more."""
        return self.commit.failure

    def stopped(self) -> Iterator[tuple[str, str, str]]:
        """Account, stream and reason of what stores nothing more on its own; no account: the states
        of consumers."""
        for writer, why in self.commit.stopped.items():
            account = writer.account_name if isinstance(writer, StreamSink) else ""
            yield account, writer.name.decode(), why

    def completed(self) -> None:
        self.commit.completed()

    def tick(self) -> None:
        """What is due: ages, batches, schedules; the sync of a lazy directory."""
        self.run_due()
        self.engine.timers.run(self._clock.wall_ns())
        self.engine.hub.run_timers()
        self.engine.hub.keep_soon()
        interval_ns = self.engine.options.sync_interval_ns
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._caught_up_ns >= CATCH_UP_NS:
            self._caught_up_ns = now_ns
            self.commit.catch_up()
        if not self.stores.directory.durable and now_ns - self._synced_ns >= interval_ns:
            self._synced_ns = now_ns
            self.commit.sync()
        if now_ns - self._maintained_ns >= MAINTENANCE_NS:
            self._maintained_ns = now_ns
            self._pressure.relieve(now_ns, self.stores.directory.drop_caches)
            self.commit.maintain()

    def run_due(self) -> None:
        """A slice of each stream; the next one when the loop has served others."""
        more = self.ingests.timers.run(self._clock.wall_ns())
        if more and not self._runs_again and self.commit.ask_later is not None:
            self._runs_again = True
            self.commit.ask_later(SLICE_GAP_S, self._run_again)

    def _run_again(self) -> None:
        self._runs_again = False
        self.run_due()
        self.engine.broker.turn.run()

    def close(self) -> None:
        """All of it, the last first, whatever one of them says."""
        self._made.close()

    def _log_unopened(self) -> None:
        for account, name in self.stores.locked:
            self._logger.error(
                f"Stream '{account} > {name}' is encrypted and no configured key opens it: it is "
                "not loaded, and what is stored of it stays as it is"
            )
        for path in self.stores.unread:
            self._logger.error(f"{path} is encrypted and no configured key opens it")
        for path in self.stores.torn:
            self._logger.error(f"{path} was torn by a loss of power: its stream is forgotten")

    def _log(self, level: str, text: str) -> None:
        (self._logger.error if level == "error" else self._logger.warn)(text)

    # What monitoring shows

    def stats(self) -> dict[str, Any]:
        engine = self.engine
        return {
            "memory": engine.used_bytes("memory"),
            "storage": engine.used_bytes("file"),
            "reserved_memory": engine.reserved_bytes("memory"),
            "reserved_storage": engine.reserved_bytes("file"),
            "accounts": len(engine.accounts),
            "ha_assets": 0,
            "api": {
                "level": JETSTREAM_API_LEVEL,
                "total": engine.api.total,
                "errors": engine.api.errors,
                **({"inflight": engine.api.inflight} if engine.api.inflight else {}),
            },
        }

    def config(self) -> dict[str, Any]:
        options = self.engine.options
        shown: dict[str, Any] = {
            "max_memory": options.max_memory_bytes,
            "max_storage": options.max_store_bytes,
            "store_dir": self.store_dir,
        }
        if options.sync_always:
            shown["sync_always"] = True
        else:
            shown["sync_interval"] = options.sync_interval_ns
        if options.domain:
            shown["domain"] = options.domain
        if options.strict:
            shown["strict"] = True
        return shown

    def limits(self) -> dict[str, Any]:
        """The server's limits that are configured."""
        options = self.engine.options
        shown = {
            "max_request_batch": options.max_request_batch,
            "max_ack_pending": options.max_ack_pending,
            "max_ha_assets": options.max_ha_assets,
            "duplicate_window": options.max_duplicate_window_ns,
        }
        return {key: value for key, value in shown.items() if value}

    def account_names(self) -> list[str]:
        return sorted(self.engine.accounts)

    def stream_names(self, account: str) -> set[str] | None:
        owner = self.engine.accounts.get(account)
        return set(owner.streams) if owner is not None else None

    def consumer_names(self, account: str, stream: str) -> set[str]:
        owner = self.engine.accounts.get(account)
        found = owner.streams.get(stream) if owner is not None else None
        return set(found.consumers) if found is not None else set()

    def account_detail(
        self,
        name: str,
        with_streams: bool,
        with_config: bool,
        with_consumers: bool,
        with_direct_consumers: bool,
    ) -> dict[str, Any] | None:
        owner = self.engine.accounts.get(name)
        if owner is None:
            return None
        detail: dict[str, Any] = {
            "name": name,
            "id": name,
            "memory": owner.used_bytes("memory"),
            "storage": owner.used_bytes("file"),
            # What the account may use; no limit shows as the largest number, as with the reference.
            "reserved_memory": owner.limits.max_memory_bytes & UINT64_MAX,
            "reserved_storage": owner.limits.max_store_bytes & UINT64_MAX,
            "accounts": 0,
            "ha_assets": 0,
            "api": {"level": 0, "total": owner.api.total, "errors": owner.api.errors},
        }
        if with_streams and owner.streams:
            detail["stream_detail"] = [
                stream_detail(
                    owner.streams[each], with_config, with_consumers, with_direct_consumers
                )
                for each in owner.names
            ]
        return detail

    def totals(self) -> dict[str, int]:
        """Streams, consumers, messages and bytes of the server."""
        streams = list(self.engine.streams())
        return {
            "streams": len(streams),
            "consumers": sum(stream.consumer_count for stream in streams),
            "messages": sum(stream.store.messages for stream in streams),
            "bytes": sum(stream.store.bytes for stream in streams),
        }


def stream_detail(
    stream: Stream, with_config: bool, with_consumers: bool, with_direct_consumers: bool
) -> dict[str, Any]:
    info = stream_info(stream, with_cluster=True, with_server=False)
    shown: dict[str, Any] = {"name": stream.name}
    for key in ("created", "cluster", "config", "state", "mirror", "sources"):
        if key in info and (key != "config" or with_config):
            shown[key] = info[key]
    for key, direct, wanted in (
        ("consumer_detail", False, with_consumers),
        ("direct_consumer_detail", True, with_direct_consumers),
    ):
        found = [each for each in stream.consumers.values() if each.config.direct is direct]
        if wanted and found:
            shown[key] = [consumer_detail(each, with_config) for each in found]
    return shown


def consumer_detail(consumer: Consumer, with_config: bool) -> dict[str, Any]:
    info = consumer_info(consumer, with_server=False)
    return {key: value for key, value in info.items() if key != "config" or with_config}


def descriptors_for_connections() -> int:
    """Those from here on are for the store's files and the server's own; 0: there is no end."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = open_files_allowed() + DESCRIPTORS_KEPT
    return max(soft - kept, soft // 2) if soft > 0 else 0


def store_directory(options: JetStreamOptions) -> str:
    base = options.store_dir or str(Path(tempfile.gettempdir()) / "martlet")
    return str(Path(base) / STORE_FOLDER)


def with_machine_limits(options: JetStreamOptions, store_dir: str) -> JetStreamOptions:
    """The options with what the machine has where they say nothing."""
    memory, store = options.max_memory_bytes, options.max_store_bytes
    if memory < 0:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        memory = machine // MEMORY_SHARE[1] * MEMORY_SHARE[0]
    if store < 0:
        store = free_disk_bytes(Path(store_dir)) // MEMORY_SHARE[1] * MEMORY_SHARE[0]
    return replace(options, max_memory_bytes=memory, max_store_bytes=store)


def free_disk_bytes(path: Path) -> int:
    """Of the file system that a directory is or will be on."""
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def friendly_bytes(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(UNITS))
    return f"{size / 1024**power:.2f} {UNITS[power - 1]}B"
