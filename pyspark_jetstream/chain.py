"""Whether a file is the block that the checkpoint means (storage/FORMAT.md, "The chain").

A file can be whole and still be an older copy, or of another history: a header has the checksum
that the last record before it had, a footer that of its own last record, the checkpoint both.
"""

from __future__ import annotations

from pyspark_jetstream.blockfile import Block
from pyspark_jetstream.committed import Row
from pyspark_jetstream.errors import BlockDamaged


def check_fits(block: Block, row: Row) -> None:
    """BlockDamaged when the file is another."""
    name, head, footer = block.source.name, block.head, block.footer
    generation = head.generation
    if footer is not None:
        generation = min(generation, footer.generation)
    if generation < row.generation:
        reason = f"a copy from before it was rewritten ({generation} times, not {row.generation})"
        raise BlockDamaged(name, 12, f"the file is older than the checkpoint: {reason}")
    if head.before_checksum != row.before_checksum:
        reason = "it does not follow the block before it"
        raise BlockDamaged(name, 40, f"not the block that was written here: {reason}")
    if footer is not None and row.ends_with_footer and footer.last_checksum != row.last_checksum:
        reason = "it ends with another record"
        raise BlockDamaged(name, block.source.size - 56, f"not the block written here: {reason}")


__all__ = ["check_fits"]
