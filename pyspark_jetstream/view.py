"""What there is to read, wherever it lies: streams, and their blocks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class BlockView:
    """One block, clipped to what may be shown.

    `dead`: deleted sequences, ascending, 8 bytes each.
    """

    location: str
    number: int
    generation: int
    first_seq: int
    last_seq: int
    low_ns: int
    high_ns: int
    data_end: int
    messages: int
    sealed: bool
    file_bytes: int
    dead: bytes = b""
    subjects: tuple[bytes, ...] | None = None  # when it is known without reading the footer


@dataclass(frozen=True)
class Unreadable:
    """A block of which nothing can be read, and why; its sequences as far as anything tells."""

    number: int
    first_seq: int
    last_seq: int
    words: str


@dataclass
class StreamView:
    """One stream at one moment.

    `last_seq` is the last that can be read now. `claimed_last` is the last that was ever stored:
    some up to it may be on their way to a block, and those that were deleted may be in none.
    """

    account: str
    stream: str
    group: int
    salt: int
    floor: int
    key: bytes | None = None
    last_seq: int = 0
    claimed_last: int = 0
    blocks: list[BlockView] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)  # never came to the archive
    missing: list[tuple[int, int, int]] = field(default_factory=list)  # number, first, last
    damaged: list[Unreadable] = field(default_factory=list)
    held: frozenset[int] = frozenset()  # numbers of all blocks with messages, readable or not

    @property
    def name(self) -> str:
        return f"{self.account}/{self.stream}"

    @property
    def first_seq(self) -> int:
        """The first sequence that is not gone for good."""
        return max(self.floor, 1)
