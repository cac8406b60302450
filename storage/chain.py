"""For `inspect`: which block files are not those that the state means (FORMAT.md).

Nothing is recovered for it, and of the records only an unsealed block's last is looked at: all of
them, that is `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from storage._codec import checksum
from storage.fs import read_if_there

HEAD_SIZE = 64
TRAILER_SIZE = 128
STATE_HEAD = 128
ROW_SIZE = 112
SEALED, CUT, UNREADABLE = 1, 16, 32
KIND_ERASED = 3


@dataclass(frozen=True)
class Row:
    """What the state says about one block."""

    number: int
    data_end: int
    generation: int
    flags: int
    last_checksum: int
    prior_checksum: int


def word(content: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(content[at : at + size], "little")


def rows_of(folder: Path, salt: int) -> list[Row]:
    """The table of the newer state that holds; empty without one."""
    contents = [read_if_there(folder / name) for name in ("state.a", "state.b")]
    holding = [
        c for c in contents if len(c) > STATE_HEAD and checksum(c[:-8], salt) == word(c, len(c) - 8)
    ]
    if not holding:
        return []
    state = max(holding, key=lambda content: word(content, 24))
    return [
        Row(
            number=word(state, at),
            data_end=word(state, at + 40, 4),
            generation=word(state, at + 60, 4),
            flags=word(state, at + 64, 4),
            last_checksum=word(state, at + 80),
            prior_checksum=word(state, at + 88),
        )
        for at in range(STATE_HEAD, STATE_HEAD + word(state, 64, 4) * ROW_SIZE, ROW_SIZE)
    ]


def swapped_blocks(folder: Path, group: int, salt: int, log_goes_on: bool) -> Iterator[str]:
    """A sentence for each; where the log goes on, it may say why a block is missing."""
    for row in rows_of(folder, salt):
        path = folder / f"{row.number:016x}.blk"
        content = read_if_there(path)
        if row.data_end <= HEAD_SIZE or row.flags & UNREADABLE:
            continue
        if not content:
            if not log_goes_on:
                yield f"{path}: missing"
            continue
        problem = problem_of(content, row, group, salt)
        if problem:
            yield f"{path}: {problem}"


def problem_of(content: bytes, row: Row, group: int, salt: int) -> str:
    """Why this is not the block of `row`; empty: it is, or too damaged to tell."""
    generation = word(content, 12, 4)
    if checksum(content[:56]) == word(content, 56):
        if word(content, 16) != group or word(content, 48) != salt:
            return "a block of another stream"
        if word(content, 24) != row.number:
            return f"block {word(content, 24)} in the place of another"
        if generation < row.generation:
            return f"an older copy, rewritten {generation} times and not {row.generation}"
        if word(content, 40) != row.prior_checksum:
            return "not the block that was written here: it does not follow the one before it"
    if end_of(content, row, salt) != row.last_checksum:
        return "not the block that was written here: it ends otherwise"
    return ""


def end_of(content: bytes, row: Row, salt: int) -> int:
    """What the last checksum was, by the footer or by the record; else what the row says."""
    trailer = content[-TRAILER_SIZE:]
    if row.flags & SEALED and not row.flags & CUT:
        whole = trailer[:8] == b"MARTFTR1" and checksum(trailer[:120], salt) == word(trailer, 120)
        return word(trailer, 72) if whole else row.last_checksum
    at, start, end = HEAD_SIZE, HEAD_SIZE, min(row.data_end, len(content))
    while at < end and word(content, at, 4):
        start, at = at, at + word(content, at, 4)
    record = content[start:at]
    held = (
        checksum(record[:-8], salt) == word(record, len(record) - 8)
        if at == row.data_end
        else False
    )
    if row.generation or not held or record[4] == KIND_ERASED:
        return row.last_checksum
    return word(record, len(record) - 8)
