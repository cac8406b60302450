"""The configurations of all consumers of a data directory: one journal, a line for each change.

A line is written, and synced where the directory is durable, before the change is answered. The
journal is written anew when it is opened and when most of its lines say nothing any more, so that
it stays within a few times what the living consumers need.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from server.jetstream.consumer_config import ConsumerConfig
from storage.fs import write_file

DEAD_LINES_MAX: Final = 4096


class Entry(msgspec.Struct):
    """One line. Without a configuration: the consumer was removed."""

    account: str
    stream: str
    name: str
    created_ns: int = 0
    config: ConsumerConfig | None = None


@dataclass(frozen=True, slots=True)
class KeptConsumer:
    name: str
    config: ConsumerConfig
    created_ns: int


class ConsumerBook:
    """Opened for the life of the process; another process is kept out by the directory's lock."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._path = path
        self._durable = durable
        self._entries: dict[tuple[str, str], dict[str, Entry]] = {}
        self._dead_lines = 0
        self._fd = -1
        self._read()
        self._rewrite()

    def of_stream(self, account: str, stream: str) -> list[KeptConsumer]:
        found = self._entries.get((account, stream), {})
        return [
            KeptConsumer(entry.name, entry.config, entry.created_ns)
            for entry in found.values()
            if entry.config is not None
        ]

    def save(
        self, account: str, stream: str, name: str, config: ConsumerConfig, created_ns: int
    ) -> None:
        self._append([Entry(account, stream, name, created_ns, config.copy())])

    def remove(self, account: str, stream: str, names: Iterable[str]) -> None:
        known = self._entries.get((account, stream), {})
        self._append([Entry(account, stream, name) for name in names if name in known])

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, entries: list[Entry]) -> None:
        if not entries:
            return
        for entry in entries:
            self._apply(entry)
        text = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        if os.write(self._fd, text) != len(text):
            # A short write leaves half a line: the whole journal is known, so write it anew.
            self._rewrite()
        elif self._durable:
            os.fdatasync(self._fd)
        if self._dead_lines > DEAD_LINES_MAX + self._count():
            self._rewrite()

    def _apply(self, entry: Entry) -> None:
        key = (entry.account, entry.stream)
        consumers = self._entries.setdefault(key, {})
        self._dead_lines += entry.name in consumers
        if entry.config is not None:
            consumers[entry.name] = entry
        else:
            self._dead_lines += 1
            consumers.pop(entry.name, None)
            if not consumers:
                del self._entries[key]

    def _count(self) -> int:
        return sum(len(consumers) for consumers in self._entries.values())

    def _read(self) -> None:
        if not self._path.exists():
            return
        lines = self._path.read_bytes().split(b"\n")
        for line in lines[:-1]:  # what follows the last line's end was never answered
            self._apply(msgspec.json.decode(line, type=Entry))

    def _rewrite(self) -> None:
        self.close()
        entries = (entry for each in self._entries.values() for entry in each.values())
        text = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        write_file(self._path, text)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._dead_lines = 0
