"""What can go wrong, in words that name the place and what to do."""

from __future__ import annotations


class JetStreamError(Exception):
    """Anything of this package that a person can act on."""


class OptionError(JetStreamError):
    """An option that is not known, or whose value is not one."""


class NotUsable(JetStreamError):
    """Not a data directory or archive, or one of a newer format, or its key is missing."""


class DataLoss(JetStreamError):
    """Rows that were asked for are gone; `failOnDataLoss=false` goes on without them."""


class BlockDamaged(DataLoss):
    """A block whose bytes do not hold."""

    def __init__(self, block: str, offset: int, reason: str) -> None:
        super().__init__(block, offset, reason)
        self.block, self.offset, self.reason = block, offset, reason

    def __str__(self) -> str:
        return (
            f"block {self.block} is damaged at byte {self.offset}: {self.reason} "
            "(failOnDataLoss=false leaves out what does not hold)"
        )
