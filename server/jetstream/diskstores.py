"""The stores of a data directory: streams in files, and the configurations of those in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from server.jetstream.config import StreamConfig
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.consumerbook import ConsumerBook, KeptConsumer
from server.jetstream.offline import stream_reason
from server.jetstream.positions import KeptPositions, PositionFiles, file_stem
from server.jetstream.stores import Recovered, StoreUnavailable
from server.jetstream.stream import store_limits
from storage._blockhome import BlockHome
from storage._directory import DataDirectory, StoreDown
from storage._purge import let_go
from storage._store import StreamStore as DiskStore
from storage.filestore import FileStores
from storage.fs import make_directory
from storage.keys import FileCipher, ServerKeys
from storage.memstore import open_memory_store
from storage.ports import StoreLimits, StreamStore

Settings = dict[str, Any]
MEMORY_FOLDER: Final = "memory"
SOURCES_FOLDER: Final = "sources"
# The stream of the consumers' book: no account has an empty name.
NOBODY: Final = ""
BOOK: Final = StreamConfig(name="consumers")
UNFINISHED: Final = "unfinished"
"""Of a store whose restore was not over; it is no stream yet."""


def settings_of(account: str, config: StreamConfig, created_ns: int) -> Settings:
    return {
        "account": account,
        "created_ns": created_ns,
        "config": msgspec.json.encode(config).decode(),
    }


def config_of(settings: Settings) -> StreamConfig:
    return msgspec.json.decode(settings["config"], type=StreamConfig)


def recovered(settings: Settings, config: StreamConfig, store: StreamStore) -> Recovered:
    offline = stream_reason(config, settings["config"])
    return Recovered(settings["account"], config, settings["created_ns"], store, offline)


def label_of(settings: Settings) -> str:
    """How log lines name a stream, also one that cannot be decrypted."""
    return f"{settings['account']} > {config_of(settings).name}"


def limits_of(settings: Settings) -> StoreLimits:
    return store_limits(config_of(settings))


class DiskStores:
    """What a server with a store directory keeps. The directory is recovered when this is made."""

    def __init__(
        self,
        path: Path,
        *,
        durable: bool,
        keys: ServerKeys | None = None,
        block_compression: str = "zstd",
        loaded: Callable[[int, int, int], None] | None = None,
    ) -> None:
        make_directory(path)
        self._memory = path / MEMORY_FOLDER
        self._memory.mkdir(exist_ok=True)
        self._files = FileStores(
            path / "data",
            limits_of,
            durable=durable,
            loaded=loaded,
            keys=keys,
            label_of=label_of,
            codec_of=lambda settings: (
                block_compression if config_of(settings).compression == "s2" else "none"
            ),
        )
        with ExitStack() as made:
            made.callback(self._files.close)
            self._memory_cipher = FileCipher(self.directory.keys, MEMORY_FOLDER)
            self.book = ConsumerBook(self._open_book, self._found_book())
            self._positions = PositionFiles(
                path / SOURCES_FOLDER, FileCipher(self.directory.keys, SOURCES_FOLDER)
            )
            made.pop_all()
        self._homes: dict[tuple[str, str], BlockHome] = {}
        self._changes = 0
        self.unread: list[str] = []
        """Files of streams in memory that no configured key opens."""
        self.torn: list[str] = []
        """Such files that a loss of power has torn; they are removed."""

    @property
    def directory(self) -> DataDirectory:
        return self._files.directory

    @property
    def locked(self) -> list[tuple[str, str]]:
        named = (label.rpartition(" > ") for _, label in self.directory.locked.values())
        return [(account, name) for account, _, name in named if account != NOBODY]

    def _found_book(self) -> DiskStore | None:
        """More than one were written if one could not be decrypted for a while: they become one."""
        found = [
            self._files.stores[group]
            for group, home in self.directory.homes.items()
            if self.directory.settings_of(home)["account"] == NOBODY
        ]
        for other in found[1:]:
            seq = 0
            while (kept := other.load_next(seq + 1)) is not None:
                seq = kept.seq
                found[0].store(kept.subject, kept.headers, kept.payload, kept.ts_ns)
            self._files.wait(self._files.commit())
            self._files.delete(other)
        return found[0] if found else None

    def _open_book(self) -> DiskStore:
        return self._files.create(settings_of(NOBODY, BOOK, 0), store_limits(BOOK))

    def create(self, account: str, config: StreamConfig, created_ns: int) -> StreamStore:
        settings = settings_of(account, config, created_ns)
        limits = store_limits(config)
        if (account, config.name) in self.locked:
            raise StoreUnavailable(
                f"stream '{account} > {config.name}' is kept, and no configured key opens it"
            )
        if config.storage == "memory":
            self._write_memory(account, config.name, settings)
            return open_memory_store(limits, config.first_seq)
        try:
            store = self._files.create(settings, limits, config.first_seq, settle=False)
        except StoreDown as error:
            raise StoreUnavailable(str(error)) from error
        self._changes += 1
        self._keep_home(account, config.name, store)
        return store

    @property
    def changes(self) -> int:
        return self._changes

    @property
    def unsettled(self) -> bool:
        return self.directory.unsettled

    # Stores that are filled before their stream is there

    def begin(self, account: str, config: StreamConfig, created_ns: int) -> StreamStore:
        if config.storage == "memory":
            return open_memory_store(store_limits(config), config.first_seq)
        settings = settings_of(account, config, created_ns) | {UNFINISHED: True}
        try:
            return self._files.create(
                settings, store_limits(config), config.first_seq, settle=False
            )
        except StoreDown as error:
            raise StoreUnavailable(str(error)) from error

    def commit(self) -> None:
        self.directory.commit()

    def keep(self, account: str, config: StreamConfig, created_ns: int, store: StreamStore) -> None:
        settings = settings_of(account, config, created_ns)
        if config.storage == "memory":
            self._write_memory(account, config.name, settings)
            return
        assert isinstance(store, DiskStore)
        self._keep_home(account, config.name, store)
        self.directory.wait(self.directory.commit())
        self.directory.update_settings(self._homes[account, config.name], settings)

    def discard(self, config: StreamConfig, store: StreamStore) -> None:
        if config.storage != "memory":
            assert isinstance(store, DiskStore)
            self._files.delete(store, settle=False)
            self.commit()
        let_go(store)

    def save(self, account: str, config: StreamConfig, created_ns: int) -> None:
        settings = settings_of(account, config, created_ns)
        if config.storage == "memory":
            self._write_memory(account, config.name, settings)
        else:
            home = self._homes[account, config.name]
            self.directory.update_settings(home, settings, settle=False)
            self._changes += 1

    def remove(self, account: str, config: StreamConfig, store: StreamStore) -> None:
        self._positions.remove(account, config.name)
        if config.storage == "memory":
            self._memory_file(account, config.name).unlink(missing_ok=True)
        else:
            assert isinstance(store, DiskStore)
            del self._homes[account, config.name]
            self._files.delete(store, settle=False)
            self._changes += 1
        let_go(store)

    def _keep_home(self, account: str, name: str, store: DiskStore) -> None:
        assert isinstance(store.home, BlockHome)
        self._homes[account, name] = store.home

    def recover(self) -> Iterable[Recovered]:
        for group, home in list(self.directory.homes.items()):
            settings, store = self.directory.settings_of(home), self._files.stores[group]
            if settings["account"] == NOBODY:
                continue
            if UNFINISHED in settings:
                self._files.delete(store)
                continue
            yield self._recovered(settings, store)
        yield from self._recover_memory()

    def recover_account(self, account: str) -> Iterable[Recovered]:
        """What its streams stored last is durable before it is shown."""
        try:
            self.directory.wait(self.directory.commit())
        except StoreDown as error:
            raise StoreUnavailable(str(error)) from error
        self.book.read_again(account)
        for group, home in list(self.directory.homes.items()):
            settings = self.directory.settings_of(home)
            # What a restore is still filling is no stream.
            if settings["account"] == account and UNFINISHED not in settings:
                yield self._recovered(settings, self._files.stores[group])
        yield from (found for found in self._recover_memory() if found.account == account)

    def _recovered(self, settings: Settings, store: DiskStore) -> Recovered:
        config = config_of(settings)
        self._keep_home(settings["account"], config.name, store)
        return recovered(settings, config, store)

    def close(self) -> None:
        self._files.close()

    # Consumers

    def save_consumer(
        self, account: str, stream: str, name: str, config: ConsumerConfig, created_ns: int
    ) -> None:
        self.book.save(account, stream, name, config, created_ns)

    def remove_consumers(self, account: str, stream: str, names: Iterable[str]) -> None:
        self.book.remove(account, stream, names)

    def consumers(self, account: str, stream: str) -> Iterable[KeptConsumer]:
        return self.book.of_stream(account, stream)

    # Positions of sources

    def save_positions(
        self, account: str, stream: str, kept: KeptPositions, *, lasting: bool
    ) -> None:
        self._positions.save(account, stream, kept, lasting=lasting)

    def positions(self, account: str, stream: str) -> KeptPositions | None:
        return self._positions.load(account, stream)

    # Streams in memory come back empty

    def _memory_file(self, account: str, name: str) -> Path:
        return self._memory / f"{file_stem(account, name)}.json"

    def _write_memory(self, account: str, name: str, settings: Settings) -> None:
        """Not synced: what lives in memory need not outlive the machine."""
        path = self._memory_file(account, name)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(self._memory_cipher.pack(msgspec.json.encode(settings)))
        fresh.rename(path)

    def _recover_memory(self) -> Iterator[Recovered]:
        for path in sorted(self._memory.glob("*.json")):
            content = self._memory_cipher.unpack(path.read_bytes())
            if content is None:
                self.unread.append(str(path))
                continue
            try:
                settings = msgspec.json.decode(content, type=Settings)
            except msgspec.DecodeError:  # torn by a loss of power
                self.torn.append(str(path))
                path.unlink()
                continue
            config = config_of(settings)
            store = open_memory_store(store_limits(config), config.first_seq)
            yield recovered(settings, config, store)
