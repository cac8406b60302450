"""Sources: messages of other streams stored as new ones, each with a header that says whence.

How far each source has come is in the last message it brought, found again at the start by reading
backwards. Because such a message may be gone by then, the positions are kept beside the stream too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.jetstream import errors, headers
from server.jetstream._copy import PlainCopier
from server.jetstream.checks import STREAM_SOURCE
from server.jetstream.config import StreamSource
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.copier import Copier, rollup_of, without_conditions
from server.jetstream.gotime import time_ns, time_text
from server.jetstream.origins import (
    identity,
    index_name,
    mark_around_seq,
    source_hash,
    source_header,
)
from server.jetstream.positions import Position
from storage._store import StreamStore
from storage.ports import StoredMessage

if TYPE_CHECKING:
    from server.jetstream.copiers import Copiers
    from server.jetstream.positions import Positions
    from server.jetstream.stream import Stream


class SourceCopier(Copier):
    KIND = "src"
    LETTER = "S"
    REQUIRES_FLOW_CONTROL = errors.SOURCE_CONSUMER_REQUIRES_ACK_FC

    def __init__(
        self, copiers: Copiers, target: Stream, source: StreamSource, positions: Positions
    ) -> None:
        super().__init__(copiers, target, source)
        self.index = index_name(source)
        self.positions = positions
        self.recreated = False
        known = positions.of(source)
        self.position, self.identity = known.seq, known.identity

    @property
    def consumer_name(self) -> str:
        return f"JS_SRC_{source_hash(self.target, self.source)}"

    def meet(self, origin: Stream) -> None:
        """Go on behind the last message that came from here; from the start if it is another."""
        found = identity(origin.created_ns)
        is_other = self.identity not in ("", found)
        # A stream in memory begins anew with the process, under the same identity.
        is_empty_again = origin.config.storage == "memory" and origin.durable_seq < self.position
        if is_other or is_empty_again:
            self.position, self.recreated = 0, True
            self.copiers.warn_of_recreated(self)
        self.identity = found

    def start(self, delivered_seq: int) -> None:
        self.position = max(self.position, delivered_seq)
        self.recreated = False

    def starting_config(self) -> ConsumerConfig:
        config = ConsumerConfig(filter_subjects=list(self.filters or ()))
        source, seq = self.source, self.position + 1
        if seq > 1 or source.opt_start_seq:
            config.deliver_policy = "by_start_sequence"
            config.opt_start_seq = seq if seq > 1 else source.opt_start_seq
            return config
        since = self.start_time()
        if since is not None:
            config.deliver_policy, config.opt_start_time = "by_start_time", since
        return config

    def made_plain(self, origin: Stream) -> PlainCopier | None:
        assert isinstance(origin.store, StreamStore)
        head, tail = mark_around_seq(self.index)
        mark = STREAM_SOURCE + b": " + head
        text = self.identity.encode()
        return PlainCopier(self.ingest.sink, origin.store, self.filters, mark, tail, text)

    def start_time(self) -> str | None:
        """As the reference: never before the last message of a target that has some already."""
        state, wanted = self.target.store.state(), self.source.opt_start_time
        last_ns = state.last_ts_ns
        if wanted is not None:
            return time_text(last_ns) if last_ns and time_ns(wanted) < last_ns else wanted
        if state.first_seq > 1 and last_ns and not self.recreated:
            return time_text(last_ns)
        return None

    def take(self, stored: StoredMessage) -> None:
        checks = self.publisher.checks
        block = without_conditions(headers.removed(stored.headers, STREAM_SOURCE))
        mark = source_header(self.index, stored.seq, stored.subject, self.identity)
        message = self.begun(stored, headers.added(block, STREAM_SOURCE, mark))
        if checks.duplicate_of(message):
            return
        message.rollup = rollup_of(message.headers)
        checks.sourced_counter(message)
        self.finish(message)

    def copied(self) -> None:
        self.positions.moved(self.index, Position(self.position, self.identity))
