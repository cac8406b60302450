"""Where a stream's messages are kept: the port, and the part of it that memory answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from server.jetstream.config import StreamConfig
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.consumerbook import ConsumerBook, KeptConsumer
from server.jetstream.positions import KeptPositions
from server.jetstream.stream import store_limits
from storage._purge import let_go
from storage.memstore import open_memory_store
from storage.ports import StreamStore


class StoreUnavailable(Exception):
    """No store of this kind can be opened; the text says why."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A stream that was found at the start."""

    account: str
    config: StreamConfig
    created_ns: int
    store: StreamStore
    offline: str = ""
    """Why it cannot be served."""


class Stores(Protocol):
    """Opens, keeps and removes the stores of streams, and remembers their configurations."""

    def create(self, account: str, config: StreamConfig, created_ns: int) -> StreamStore:
        """A new stream's store. Nobody may be told of it while things are `unsettled`."""

    @property
    def changes(self) -> int:
        """How often something was created, saved or removed that needs the disk to last."""

    @property
    def unsettled(self) -> bool:
        """Some of that is not there yet: it lasts when the engine's `when_settled` says so."""

    def begin(self, account: str, config: StreamConfig, created_ns: int) -> StreamStore:
        """A store that the next start throws away, unless it is kept."""

    def commit(self) -> None:
        """What was written to such stores is handed to the disk."""

    def keep(self, account: str, config: StreamConfig, created_ns: int, store: StreamStore) -> None:
        """Make all of it last, as that of a stream."""

    def discard(self, config: StreamConfig, store: StreamStore) -> None:
        """It is not kept."""

    def save(self, account: str, config: StreamConfig, created_ns: int) -> None: ...
    def remove(self, account: str, config: StreamConfig, store: StreamStore) -> None: ...
    def recover(self) -> Iterable[Recovered]:
        """Every stream that is kept: at the start."""

    def recover_account(self, account: str) -> Iterable[Recovered]:
        """Those of one account that is served again. StoreUnavailable when the disk is down."""

    def save_consumer(
        self, account: str, stream: str, name: str, config: ConsumerConfig, created_ns: int
    ) -> None: ...
    def remove_consumers(self, account: str, stream: str, names: Iterable[str]) -> None: ...
    def consumers(self, account: str, stream: str) -> Iterable[KeptConsumer]: ...

    @property
    def book(self) -> ConsumerBook | None:
        """Where the states of consumers are kept; None: they live as long as the process."""

    @property
    def locked(self) -> list[tuple[str, str]]:
        """Account and name of streams that no configured key opens: kept, and not served."""

    def save_positions(
        self, account: str, stream: str, kept: KeptPositions, *, lasting: bool
    ) -> None: ...
    def positions(self, account: str, stream: str) -> KeptPositions | None: ...


class MemoryStores:
    """Streams that live as long as the process."""

    book = None

    def create(self, account: str, config: StreamConfig, created_ns: int) -> StreamStore:
        if config.storage != "memory":
            raise StoreUnavailable(
                "this server keeps streams in memory only: ask for storage memory"
            )
        return open_memory_store(store_limits(config), config.first_seq)

    @property
    def changes(self) -> int:
        return 0

    @property
    def unsettled(self) -> bool:
        return False

    @property
    def locked(self) -> list[tuple[str, str]]:
        return []

    def begin(self, account: str, config: StreamConfig, created_ns: int) -> StreamStore:
        return self.create(account, config, created_ns)

    def commit(self) -> None:
        """There is no disk."""

    def keep(self, account: str, config: StreamConfig, created_ns: int, store: StreamStore) -> None:
        """Nothing outlives the process."""

    def discard(self, config: StreamConfig, store: StreamStore) -> None:
        let_go(store)

    def save(self, account: str, config: StreamConfig, created_ns: int) -> None:
        """Nothing outlives the process."""

    def remove(self, account: str, config: StreamConfig, store: StreamStore) -> None:
        let_go(store)

    def recover(self) -> Iterable[Recovered]:
        return ()

    def recover_account(self, account: str) -> Iterable[Recovered]:
        return ()

    def save_consumer(
        self, account: str, stream: str, name: str, config: ConsumerConfig, created_ns: int
    ) -> None:
        """Nothing outlives the process."""

    def remove_consumers(self, account: str, stream: str, names: Iterable[str]) -> None:
        """Nothing was kept."""

    def consumers(self, account: str, stream: str) -> Iterable[KeptConsumer]:
        return ()

    def save_positions(
        self, account: str, stream: str, kept: KeptPositions, *, lasting: bool
    ) -> None:
        """Nothing outlives the process."""

    def positions(self, account: str, stream: str) -> KeptPositions | None:
        return None
