"""What names an origin: index names, identities, and the header that sourced messages carry.

A source's index name is its stream, its filters and its destinations; a message that came through
it says so in `Nats-Stream-Source: <stream> <seq> <filters> <destinations> <subject> <identity>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.jetstream.config import StreamSource
from server.jetstream.gotime import time_text
from server.jetstream.shorthash import short_hash

if TYPE_CHECKING:
    from server.jetstream.stream import Stream

ALL: Final = ">"
ACK_PREFIX: Final = "$JS.ACK."
OLD_ACK_TOKENS: Final = 9
ACK_TOKENS: Final = 11


def identity(created_ns: int) -> str:
    """What tells a stream from one of the same name that was made at another time."""
    return short_hash(time_text(created_ns))


def receiver_hash(target: Stream) -> str:
    """What makes the name of a consumer that feeds this stream alone."""
    names = [target.name, target.account.name, target.engine.domain]
    return short_hash(" ".join(name for name in names if name))


def source_hash(target: Stream, source: StreamSource) -> str:
    """The same for one of its sources; several of one stream need to be told apart."""
    text = receiver_hash(target)
    if sum(other.name == source.name for other in target.config.sources) > 1:
        text += " " + index_name(source)
    return short_hash(text)


def origin_name(source: StreamSource) -> str:
    """The first part of the index name: the stream, and how it is reached if not plainly."""
    name = source.name
    if source.external is not None:
        name += ":" + short_hash(source.external.api)
    if source.consumer is not None:
        name += ":C=" + short_hash(source.consumer.name)
    return name


def index_name(source: StreamSource) -> str:
    transforms = source.subject_transforms
    if not transforms:
        return f"{origin_name(source)} {source.filter_subject or ALL} {ALL}"
    filters = "\f".join(each.src or ALL for each in transforms)
    targets = "\f".join(each.dest or ALL for each in transforms)
    return f"{origin_name(source)} {filters} {targets}"


def source_header(index: str, seq: int, subject: str, origin_identity: str) -> bytes:
    origin, rest = index.split(" ", 1)
    text = f"{origin} {seq} {rest} {subject}"
    if origin_identity:
        text += " " + origin_identity
    return text.encode("utf-8", "surrogateescape")


def mark_around_seq(index: str) -> tuple[bytes, bytes]:
    """What stands before and behind the sequence in a source's header, up to the subject."""
    origin, rest = index.encode("utf-8", "surrogateescape").split(b" ", 1)
    return origin + b" ", b" " + rest + b" "


@dataclass(frozen=True, slots=True)
class SourceMark:
    """What a sourced message tells of where it came from. `index` is empty in old ones."""

    origin: str
    index: str
    seq: int
    identity: str


def read_header(text: str) -> SourceMark | None:
    """The header as this or any earlier version wrote it; None when it cannot be read."""
    if text.startswith(ACK_PREFIX):
        return read_ack_subject(text.split("."))
    fields = text.split(" ")
    if len(fields) < 2 or len(fields) == 3 or not fields[1].isdigit():
        return None
    if len(fields) == 2:
        return SourceMark(fields[0], "", int(fields[1]), "")
    index = " ".join((fields[0], fields[2], fields[3]))
    return SourceMark(fields[0], index, int(fields[1]), fields[5] if len(fields) > 5 else "")


def read_ack_subject(tokens: list[str]) -> SourceMark | None:
    """The oldest form: the ack subject of the delivery."""
    if len(tokens) != OLD_ACK_TOKENS and len(tokens) < ACK_TOKENS:
        return None
    at = 4 if len(tokens) >= ACK_TOKENS else 2
    seq = tokens[at + 3]
    return SourceMark(tokens[at], "", int(seq), "") if seq.isdigit() else None


def is_of(mark: SourceMark, source: StreamSource) -> bool:
    """Whether the mark was made by this source; an old mark counts for every one of its stream."""
    if mark.index:
        return mark.index == index_name(source)
    reached = source.name
    if source.external is not None:
        reached += ":" + short_hash(source.external.api)
    return mark.origin in (source.name, reached)
