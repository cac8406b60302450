"""A mirror: the same messages under the same sequences and times as in its origin.

Sequences that the origin lost, or that the mirror's filter leaves out, are skipped. A mirror never
gives up what it has: when its origin was made again and ends before the mirror does, it says so in
its information and goes on behind its own last message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.jetstream import errors
from server.jetstream._copy import PlainCopier
from server.jetstream.apierror import ApiError
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.copier import Copier, rollup_of, without_conditions
from server.jetstream.origins import receiver_hash
from storage._store import StreamStore
from storage.ports import StoredMessage

if TYPE_CHECKING:
    from server.jetstream.stream import Stream

CAUGHT_UP_MESSAGES = 10
"""With fewer waiting a mirror answers direct gets for its origin."""


class MirrorCopier(Copier):
    KIND = "mirror"
    LETTER = "M"
    REQUIRES_FLOW_CONTROL = errors.MIRROR_CONSUMER_REQUIRES_ACK_FC

    @property
    def consumer_name(self) -> str:
        return f"JS_MIRROR_{receiver_hash(self.target)}"

    def start(self, delivered_seq: int) -> None:
        """Behind what is there already; the configured start is for an empty mirror only."""
        store = self.target.store
        if store.last_seq < delivered_seq:
            self.skip_to(delivered_seq)
        self.position = max(delivered_seq, store.last_seq)

    def starting_config(self) -> ConsumerConfig:
        source, last = self.source, self.target.store.last_seq
        config = ConsumerConfig(filter_subjects=list(self.filters or ()))
        seq = last + 1 if last else source.opt_start_seq
        if seq:
            config.deliver_policy, config.opt_start_seq = "by_start_sequence", seq
        elif source.opt_start_time is not None:
            config.deliver_policy, config.opt_start_time = "by_start_time", source.opt_start_time
        return config

    def made_plain(self, origin: Stream) -> PlainCopier | None:
        assert isinstance(origin.store, StreamStore)
        return PlainCopier(self.ingest.sink, origin.store, self.filters)

    def skip_to(self, seq: int) -> None:
        self.ingest.sink.skip_to(seq)

    def take(self, stored: StoredMessage) -> None:
        store = self.target.store
        if stored.seq <= store.last_seq:
            return
        block = without_conditions(stored.headers)
        message = self.begun(stored, block, stored.ts_ns)
        message.rollup = rollup_of(message.headers)
        if store.last_seq < stored.seq - 1:
            self.skip_to(stored.seq - 1)
        self.finish(message)

    def copied(self) -> None:
        direct = self.ingest.direct
        if self.target.config.mirror_direct and not direct.for_origin:
            assert self.supply is not None
            if self.supply.waiting(self.position) < CAUGHT_UP_MESSAGES:
                direct.answer_for_origin()

    @property
    def shown_error(self) -> ApiError | None:
        origin, store = self.origin, self.target.store
        last = store.last_seq
        is_behind = origin is not None and store.messages > 0 and origin.durable_seq < last
        if self.error is None and origin is not None and is_behind:
            return errors.MIRROR_CONSUMER_SETUP_FAILED(
                err=f"the origin ends at sequence {origin.durable_seq} and was made again or lost "
                f"messages: this mirror keeps what it has and goes on behind sequence {last}"
            )
        return self.error
