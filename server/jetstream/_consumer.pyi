from collections.abc import Sequence
from typing import Protocol

from server.core._account import Account
from server.core._broker import Broker
from server.core._sublist import Sublist
from server.jetstream._ingest import StreamSink
from server.jetstream._keeper import Keeper, Reader
from server.jetstream._pending import PendingTable
from server.jetstream._waiting import WaitingQueue
from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.consumerbook import ConsumerBook
from server.jetstream.timers import WakingTimers
from storage._store import StreamStore

class Owner(Protocol):
    """Whom a core tells of what is rare."""

    def terminated(self, seq: int, consumer_seq: int, deliveries: int, reason: str) -> None: ...
    def naked(self, seq: int, consumer_seq: int, deliveries: int) -> None: ...
    def max_delivered(self, seq: int, deliveries: int) -> None: ...
    def warn_of_delay(self, argument: bytes) -> None: ...
    def broken(self, error: BaseException) -> None: ...

class Flow:
    core: ConsumerCore
    def __init__(self, core: ConsumerCore) -> None: ...

class ConsumerCore:
    hub: ConsumerHub
    feed: StreamFeed
    owner: Owner
    config: ConsumerConfig
    account: Account
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
    def take_waits(self, config: ConsumerConfig) -> None: ...
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
    def refuse_waiting(self, code: int, text: str, with_rest: bool = False) -> None:
        """Tell all that wait that they get nothing more, and forget them."""
    def send_empty(self, to: bytes) -> None: ...
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
    def keep(self, keeper: Keeper, records: list[tuple[int, bytes]]) -> None:
        """Keep the state from now on; `records` are what was kept of it, oldest first."""
    def has_record(self, keeper: Keeper, records: list[tuple[int, bytes]]) -> bool:
        """Whether one of them is of this consumer and not of a namesake before it."""
    def take_record(self, keeper: Keeper, reader: Reader) -> None: ...
    def take_place(self, reader: Reader) -> None: ...
    def take_retired(self, reader: Reader) -> None: ...
    def take_entries(self, reader: Reader, passed_ns: int) -> None: ...
    def take_change(self, reader: Reader, passed_ns: int) -> None: ...
    def fit_to_stream(self) -> None:
        """The stream may have lost its tail, and messages that were pending."""
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
    def waiting_count(self) -> int:
        """After those are gone that nobody listens for."""
    @property
    def is_waited_for(self) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...

class StreamFeed:
    hub: ConsumerHub
    store: StreamStore
    account: Account
    name: bytes
    retention: int
    durable_seq: int
    interest: Sublist
    cores: dict[ConsumerCore, None]
    def __init__(
        self,
        hub: ConsumerHub,
        account: Account,
        store: StreamStore,
        name: str,
        retention: str,
        durable_seq: int,
    ) -> None: ...
    def attach(self, sink: StreamSink | None) -> None:
        """What stores the stream's messages asks here whether somebody wants them."""
    def set_retention(self, retention: str) -> None: ...
    def add(self, core: ConsumerCore) -> None: ...
    def drop(self, core: ConsumerCore) -> None: ...
    def changed_filters(self, had: bool, has: bool) -> None:
        """One of them has filters now, or has none any more."""
    def appended(self, first: int, last: int) -> None:
        """These became durable."""
    def remove_unwanted(self, first: int, last: int) -> int:
        """Messages in this range that no consumer waits for go; how many."""

class AckSink:
    newer_prefix: bytes
    def __init__(self, hub: ConsumerHub, account: Account) -> None: ...
    def close(self) -> None: ...

class ConsumerHub:
    broker: Broker
    timers: WakingTimers
    dormant: set[ConsumerCore]
    armed_ns: int | None
    turn_wall_ns: int
    domain: str
    messages_a_turn_max: int
    messages_at_once_max: int
    def __init__(self, broker: Broker, domain: str = "") -> None: ...
    def run(self) -> None:
        """The phase: each consumer that is ready gets its share, in turn."""
    def run_told(self) -> None: ...
    def run_timers(self) -> None:
        """What is due by now."""
    book: ConsumerBook | None
    def set_book(self, book: ConsumerBook | None) -> None: ...
    def keep_soon(self) -> None:
        """Write what changed with this turn's commit."""
    def keep_all(self) -> None:
        """Changes go to the book; it is durable with the messages of this turn."""
    def answer(self, asking: list[tuple[ConsumerCore, bytes]]) -> None: ...
    def add_dormant(self, core: ConsumerCore) -> None: ...
    def tick(self, now_ns: int) -> None: ...
    def close(self) -> None: ...
