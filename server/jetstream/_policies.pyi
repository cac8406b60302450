from collections.abc import Callable

from server.jetstream._flow import Flow
from server.jetstream.consumer_config import ConsumerConfig

# subject, header block, payload, sequence, time, deliveries, why, reason
DeadLetter = Callable[[bytes, bytes, bytes, int, int, int, str, str], None]

class CommonFlow(Flow):
    paused_until_wall_ns: int
    on_resumed: Callable[[], None]
    sample_percent: int
    on_sampled: Callable[[int, int, int, int], None]
    on_dead: DeadLetter | None
    def pause_until(self, until_wall_ns: int) -> None:
        """Deliver nothing before this time of day; 0: go on."""

class PushFlow(CommonFlow):
    beat_ns: int
    window: int
    under_way: int
    asked: bytes | None
    def configure(self, config: ConsumerConfig, burst: int) -> None:
        """`burst`: bytes that may go at once in spite of the rate."""
    def answered(self, subject: bytes, consumer_seq: int, seq: int) -> None:
        """The client has come to where it was asked; 0: it did not say which sequences."""

class GroupFlow(CommonFlow):
    pin: str
    group: str
    pinned_wall_ns: int
    new_pin: Callable[[], str]
    on_pinned: Callable[[str, str], None]
    on_unpinned: Callable[[str, str], None]
    def configure(self, config: ConsumerConfig) -> None: ...
    def unpin(self) -> None:
        """The next request is pinned instead."""
