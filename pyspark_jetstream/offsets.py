"""Offsets: the sequence of each stream to be read next, and which stream of that name was meant.

`{"ACCOUNT/STREAM": next sequence, "ACCOUNT/STREAM identity": a number}`. A stream that was deleted
and made anew has another identity, and its sequences begin again. What has no identity, as offsets
that somebody wrote or that are from before, means whatever stream has the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark_jetstream.view import StreamView

IDENTITY = " identity"  # a stream's name has no blank


def reached(view: StreamView, behind: int) -> dict[str, int]:
    return {view.name: behind, view.name + IDENTITY: identity(view)}


def identity(view: StreamView) -> int:
    """Random, and the stream's for its life; it fits where numbers are signed."""
    return view.salt >> 1


def is_other(view: StreamView, offsets: Any) -> bool:
    """Whether the offsets are of another stream that had this name."""
    known = offsets.get(view.name + IDENTITY) if isinstance(offsets, Mapping) else None
    return known is not None and known != identity(view)


def may_be_other(view: StreamView, offsets: Any, next_seq: int) -> bool:
    """Whether the offsets, which want `next_seq`, are of another stream as far as can be told.

    Without an identity a stream that ends before them must be another. With it, it is one that is
    not there yet: an archive or copy that lags, or sequences of the future that were asked for.
    """
    known = isinstance(offsets, Mapping) and view.name + IDENTITY in offsets
    return is_other(view, offsets) if known else next_seq > view.claimed_last + 1


def waiting(view: StreamView, next_seq: int) -> str:
    what = f"stream {view.name} ends at {view.claimed_last}; {next_seq} is to be read next"
    return f"{what}: waiting for it, as for an archive or copy that lags behind"


def sequences(offsets: Mapping[str, int]) -> dict[str, int]:
    """By stream, without the identities."""
    return {name: value for name, value in offsets.items() if not name.endswith(IDENTITY)}
