from collections.abc import Sequence
from typing import Protocol

from server.core._account import Account
from server.jetstream._feed import StreamFeed
from server.jetstream._flow import Flow
from server.jetstream._hub import ConsumerHub
from server.jetstream._keeper import Keeper
from server.jetstream._outlet import Outlet
from server.jetstream._pending import PendingTable
from server.jetstream._pullsink import PullSink
from server.jetstream._waiting import WaitingQueue
from server.jetstream.consumer_config import ConsumerConfig

class Owner(Protocol):
    """Whom a core tells of what is rare."""

    def terminated(self, seq: int, consumer_seq: int, deliveries: int, reason: str) -> None: ...
    def naked(self, seq: int, consumer_seq: int, deliveries: int) -> None: ...
    def max_delivered(self, seq: int, deliveries: int) -> None: ...
    def warn_of_delay(self, argument: bytes) -> None: ...
    def broken(self, error: BaseException) -> None: ...

class ConsumerCore:
    hub: ConsumerHub
    feed: StreamFeed
    owner: Owner
    config: ConsumerConfig
    account: Account
    pulls: PullSink
    outlet: Outlet
    flow: Flow | None
    filters: list[str]
    is_push: bool
    table: PendingTable
    waiting: WaitingQueue
    next_seq: int
    next_consumer_seq: int
    delivered_seq: int
    floor_seq: int
    floor_consumer_seq: int
    delivered_wall_ns: int
    acked_wall_ns: int
    num_pending: int
    closed: bool
    active: bool
    used_ns: int
    armed_ns: int | None
    def __init__(
        self, feed: StreamFeed, owner: Owner, name: str, config: ConsumerConfig, next_seq: int
    ) -> None: ...
    def configure(self, config: ConsumerConfig) -> None:
        """Live with another configuration: at the start, and when it was changed."""
    def start_at(self, seq: int) -> None:
        """Where a consumer that knows nothing begins."""
    def skip_to(self, sequences: Sequence[int], resume_seq: int) -> None:
        """Deliver these first, then go on from `resume_seq`."""
    def start_behind(self, seq: int) -> None:
        """It was among the last of each subject, and none of them is left."""
    def replay_until(self, seq: int) -> None:
        """Keep the gaps between messages up to this one."""
    def start(self) -> None:
        """Listen, count, and deliver from the next turn on."""
    def stop(self) -> None:
        """Hear and deliver nothing any more. Whoever waits is forgotten."""
    def recount(self) -> None:
        """Count anew what is left to deliver."""
    def send_heartbeat(self, to: bytes, more: bytes = b"") -> None:
        """`more`: lines that stand behind the two sequences."""
    def tick(self, now_ns: int) -> None:
        """The time that was armed has come."""
    def look_for_listeners(self) -> None:
        """Whether somebody listens on the deliver subject; if nobody does, look again soon."""
    def has_listeners(self) -> bool: ...
    def redeliver_all(self) -> None:
        """Whoever got them is not who listens now."""
    def purged(self, first_seq: int, last_seq: int, is_wider: bool) -> None:
        """Messages went by a purge; `first_seq` is the first that may be left, 0: none is."""
    def reset(self, seq: int) -> None:
        """Deliver from `seq` on, as if nothing had been delivered."""
    keeper: Keeper | None
    def keep(self, keeper: Keeper) -> None:
        """Keep the state from now on."""
    @property
    def kept_resume_seq(self) -> int:
        """Where it goes on behind the last of each subject, when it was stopped among them."""
    def forget(self) -> None:
        """The consumer is gone: so is what was kept of it."""
    @property
    def ack_pending(self) -> int: ...
    @property
    def redelivered(self) -> int: ...
    @property
    def passed_seq(self) -> int:
        """Up to where nothing was found for it yet."""
    @property
    def is_retiming(self) -> bool:
        """Whether some of those pending are still waited for as they were before a change."""
    def waiting_count(self) -> int:
        """After those are gone that nobody listens for."""
    @property
    def is_waited_for(self) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...
