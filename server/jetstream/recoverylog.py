"""What the log says of a start: how far it is, what each stream has, what was found damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from server.clock import Clock
from server.jetstream.gotime import duration_text
from server.jetstream.stream import Stream
from storage._blockhome import BlockHome
from storage._store import StreamStore as DiskStore

TELL_EVERY_NS: Final = 1_000_000_000
DAMAGE_TOLD_MAX: Final = 100
MILLISECOND_NS: Final = 1_000_000

Say = Callable[[str], None]


class RecoveryLog:
    """`loaded` is called for each stream of the data directory, `finish` once all are served."""

    def __init__(self, clock: Clock, notice: Say, warn: Say) -> None:
        self._clock = clock
        self._notice = notice
        self._warn = warn
        self._took_ns: dict[int, int] = {}
        self._loaded_ns = self._told_ns = clock.monotonic_ns()

    def loaded(self, group: int, done: int, total: int) -> None:
        """The stream of `group` is the last of `done`; with 0 the first one is begun."""
        now_ns = self._clock.monotonic_ns()
        self._took_ns[group] = now_ns - self._loaded_ns
        self._loaded_ns = now_ns
        if now_ns - self._told_ns >= TELL_EVERY_NS:
            self._told_ns = now_ns
            self._notice(f"  Restored {done:,} of {total:,} streams")

    def finish(self, streams: Iterable[Stream], damage: Iterable[str]) -> None:
        """`damage` is the directory's own; that of a stream is asked of its store."""
        sentences = list(damage)
        for stream in streams:
            home = home_of(stream)
            took_ns = self._took_ns[home.group] if home is not None else 0
            rounded_ns = (took_ns + MILLISECOND_NS // 2) // MILLISECOND_NS * MILLISECOND_NS
            self._notice(
                f"  Restored {stream.store.messages:,} messages for stream "
                f"'{stream.account.name} > {stream.name}' in {duration_text(rounded_ns)}"
            )
            sentences.extend(home.damage if home is not None else ())
        for sentence in sentences[:DAMAGE_TOLD_MAX]:
            self._warn(f"  {sentence}")
        if len(sentences) > DAMAGE_TOLD_MAX:
            self._warn(f"  and {len(sentences) - DAMAGE_TOLD_MAX:,} places more")


def home_of(stream: Stream) -> BlockHome | None:
    """None: it lives in memory."""
    home = stream.store.home if isinstance(stream.store, DiskStore) else None
    return home if isinstance(home, BlockHome) else None
