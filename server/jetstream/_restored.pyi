from server.jetstream._consumer import ConsumerCore
from server.jetstream._keeper import Keeper

def has_record(keeper: Keeper, records: list[tuple[int, bytes]]) -> bool:
    """Whether one of them is of this consumer and not of a namesake before it."""

def restore(core: ConsumerCore, keeper: Keeper, records: list[tuple[int, bytes]]) -> None:
    """`records` are what was kept of it, oldest first."""

def fit_to_stream(core: ConsumerCore) -> None:
    """The stream may have lost its tail, and messages that were pending."""
