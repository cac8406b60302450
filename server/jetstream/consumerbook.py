"""Consumers as they are kept: configurations and states, in a stream of the data directory that
nobody sees.

What is written here is durable with the commit of the turn in which it was written, as the messages
of all other streams are, and never before them: a consumer is not ahead of its stream. A record
lives until another one makes it worthless, so the stream stays within a few times what the living
consumers need. Whoever must not answer before something is durable asks `when_durable`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from server.jetstream._commit import LocalCommit, Writer
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.offline import consumer_reason
from storage._store import StreamStore

CONFIGURATION: Final = "c."
STATE: Final = "s."


class Entry(msgspec.Struct):
    created_ns: int
    config: ConsumerConfig


class RawEntry(msgspec.Struct):
    """The same with everything that its configuration says."""

    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class KeptConsumer:
    name: str
    config: ConsumerConfig
    created_ns: int
    offline: str = ""
    """Why it cannot be served."""


def key_of(account: str, stream: str, name: str) -> str:
    """Only an account's name may have dots."""
    return f"{account}.{stream}.{name}"


def account_of(key: str) -> str:
    return key.rsplit(".", 2)[0]


class ConsumerBook(Writer):
    """Written to as streams are; its store is opened when it is first needed."""

    def __init__(self, open_store: Callable[[], StreamStore], store: StreamStore | None) -> None:
        super().__init__(b"consumers", store, False)
        self._open_store = open_store
        self._commit: LocalCommit | None = None
        self._configurations: dict[str, dict[str, int]] = {}
        self._kept: dict[str, dict[str, Entry]] = {}
        self._offline: dict[str, str] = {}
        self._states: dict[str, list[tuple[int, bytes]]] = {}
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.is_dirty = False  # something was written in this turn
        if store is not None:
            self._read(store)

    def _read(self, store: StreamStore, account: str | None = None) -> None:
        seq = 1
        while (found := store.load_next(seq)) is not None:
            seq = found.seq + 1
            kind, key = found.subject[:2], found.subject[2:]
            if account is not None and account_of(key) != account:
                continue
            if kind == STATE:
                self._states.setdefault(key, []).append((found.seq, found.payload))
                continue
            owner, _, name = key.rpartition(".")
            self._configurations.setdefault(owner, {})[name] = found.seq
            entry = msgspec.json.decode(found.payload, type=Entry)
            self._kept.setdefault(owner, {})[name] = entry
            raw = msgspec.json.decode(found.payload, type=RawEntry)
            if reason := consumer_reason(entry.config, raw.config):
                self._offline[f"{owner}.{name}"] = reason
            else:
                self._offline.pop(f"{owner}.{name}", None)

    def read_again(self, account: str) -> None:
        """What is kept of an account's consumers now: they come back while the server runs."""
        for known in (self._kept, self._configurations):
            for owner in [owner for owner in known if owner.rpartition(".")[0] == account]:
                del known[owner]
        for key in [key for key in self._states if account_of(key) == account]:
            del self._states[key]
        if self.store is not None:
            self._read(self.store, account)

    def attach(self, commit: LocalCommit) -> None:
        self._commit = commit
        commit.adopt(self)

    # Writing

    def _opened(self) -> StreamStore:
        if self.store is None:
            self.store = self._open_store()
        return self.store

    def _touch(self) -> None:
        if not self.is_dirty and self._commit is not None:
            self.is_dirty = True
            self._commit.dirty(self)

    def _append(self, subject: str, payload: bytes) -> int:
        if self.down is not None:
            raise OSError(self.down)
        store = self._opened()
        self._touch()
        return store.store(subject, b"", payload, 0)

    def _forget(self, sequences: Iterable[int]) -> None:
        store = self._opened()
        self._touch()
        store.delete_many(list(sequences))

    def save(
        self, account: str, stream: str, name: str, config: ConsumerConfig, created_ns: int
    ) -> None:
        """Keep a configuration in place of the one before."""
        payload = msgspec.json.encode(Entry(created_ns, config))
        seq = self._append(CONFIGURATION + key_of(account, stream, name), payload)
        known = self._configurations.setdefault(f"{account}.{stream}", {})
        if name in known:
            self._forget([known[name]])
        known[name] = seq

    def remove(self, account: str, stream: str, names: Iterable[str]) -> None:
        """Forget the configurations; the states go with `replace`."""
        owner = f"{account}.{stream}"
        known = self._configurations.get(owner, {})
        gone = [known.pop(name) for name in names if name in known]
        if gone:
            self._forget(gone)
        if not known:
            self._configurations.pop(owner, None)

    def write(self, key: str, records: Sequence[bytes]) -> list[int]:
        """Add to a consumer's state; the sequences by which `forget` knows the records."""
        return [self._append(STATE + key, record) for record in records]

    def forget(self, sequences: Sequence[int]) -> None:
        """Records of states that say nothing any more."""
        if sequences:
            self._forget(sequences)

    # Reading, at the start

    def of_stream(self, account: str, stream: str) -> list[KeptConsumer]:
        found = self._kept.get(f"{account}.{stream}", {})
        return [
            KeptConsumer(
                name,
                kept.config,
                kept.created_ns,
                self._offline.get(key_of(account, stream, name), ""),
            )
            for name, kept in found.items()
        ]

    def state(self, key: str) -> list[tuple[int, bytes]]:
        """The records of a state with their sequences, in order; asked once."""
        return self._states.pop(key, [])

    def drop_strays(self) -> None:
        """All consumers are back: what is left belongs to none."""
        for records in self._states.values():
            self.forget([seq for seq, _ in records])
        self._states.clear()
        self._kept.clear()

    # Durability

    def when_durable(self, call: Callable[[], None]) -> None:
        """Call it when all that was written so far is durable."""
        if self.store is None or self._commit is None:
            call()
            return
        self._touch()
        self._waiting.append((self.store.last_seq, call))

    def close_turn(self) -> None:
        self.is_dirty = False

    def release(self, seq: int) -> bool:
        """All up to `seq` is durable; whether somebody still waits."""
        self.durable_seq = max(self.durable_seq, seq)
        while self._waiting and self._waiting[0][0] <= self.durable_seq:
            self._waiting.popleft()[1]()
        return bool(self._waiting)
