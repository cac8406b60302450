"""Bytes that streams take, for the limits of accounts and of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.jetstream._ingest import Usage

if TYPE_CHECKING:
    from server.jetstream.engine import Engine
    from server.jetstream.stream import Stream


class Usages:
    """One count for each account and kind of storage, under one for the server."""

    def __init__(self) -> None:
        self._server: dict[str, Usage] = {}
        self._accounts: dict[tuple[str, str], Usage] = {}

    def of(self, stream: Stream) -> Usage:
        """The count of a stream's account, with today's limits."""
        kind, engine = stream.config.storage, stream.engine
        server = self._server.setdefault(kind, Usage())
        server.max = engine.max_bytes(kind)
        key = (stream.account.name, kind)
        if key not in self._accounts:
            self._accounts[key] = Usage(parent=server)
        usage = self._accounts[key]
        usage.max = allowed(engine, *key)
        return usage

    def follow(self, engine: Engine) -> None:
        """A reload may have moved limits."""
        for kind, usage in self._server.items():
            usage.max = engine.max_bytes(kind)
        for (account, kind), usage in self._accounts.items():
            if account in engine.accounts:
                usage.max = allowed(engine, account, kind)


def allowed(engine: Engine, account: str, kind: str) -> int:
    limits = engine.accounts[account].limits
    return limits.max_memory_bytes if kind == "memory" else limits.max_store_bytes
