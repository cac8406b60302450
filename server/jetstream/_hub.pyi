from server.core._broker import Broker
from server.jetstream._consumer import ConsumerCore
from server.jetstream.consumerbook import ConsumerBook
from server.jetstream.timers import WakingTimers

class ConsumerHub:
    broker: Broker
    timers: WakingTimers
    dormant: set[ConsumerCore]
    armed_ns: int | None
    turn_wall_ns: int
    domain: str
    long_subjects: bool
    messages_a_turn_max: int
    messages_at_once_max: int
    swept_at_once_max: int
    """A slice of a sweep ends after so many, or when its time is over."""
    def __init__(self, broker: Broker, domain: str = "", long_subjects: bool = False) -> None: ...
    def forget_account(self, name: str) -> None:
        """Its consumers are gone: their acks are heard no more."""
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
