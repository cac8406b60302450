"""Message tracing: which published messages are traced, and what is noted of their way.

`Nats-Trace-Dest: <subject>` asks for an event there that tells where the message went and why not
elsewhere; with `Nats-Trace-Only` that is all that happens. A sampled `traceparent` asks for the
same where the account's configuration names a destination. The data path comes here only for
messages with such a header. Times are kept in nanoseconds; whoever publishes the event writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from server.core.quote import quote
from server.core.subject import is_valid_literal

if TYPE_CHECKING:
    from server.core._account import Account
    from server.core._client import Client

DESTINATION: Final = b"Nats-Trace-Dest"
DISABLED: Final = b"trace disabled"
ONLY: Final = b"Nats-Trace-Only"
ORIGIN_ACCOUNT: Final = b"Nats-Trace-Origin-Account"
PARENT: Final = b"traceparent"
ENCODING: Final = b"Accept-Encoding"
YES: Final = (b"1", b"true", b"on")
LINE: Final = b"NATS/1.0\r\n"
CLIENT_KIND: Final = 0
PERCENT: Final = 100

NO_ECHO: Final = "Not delivered because of no echo"
SUB_DENIED: Final = "Not delivered because subscription denies this subject"
SUB_CLOSED: Final = "Not delivered because subscription is closed"
CLIENT_CLOSED: Final = "Not delivered because client is closed"
NOT_STALLED: Final = "Not delivered because fast producer not stalled and consumer is slow"

Fields = dict[bytes, list[bytes]]
Event = dict[str, Any]


class MessageTrace:
    """What is noted of one message. Told to the hooks when both its publisher's side and the
    stream that it went to are done with it."""

    def __init__(
        self,
        client: Client,
        destination: str,
        subject: bytes,
        fields: Fields,
        size: int,
        *,
        only: bool,
        error: str,
    ) -> None:
        account = client.account
        assert account is not None
        self._broker = client.broker
        self.account: Account = account
        self.destination = destination
        self.only = only
        self.fields = fields
        self.size = size
        self.encoding = encoding_of(fields)
        self.events: list[Event] = []
        self._stream: Event | None = None
        self._parties = 1  # still busy with it: the publisher's side, perhaps a stream
        self._ingress = self._add(
            "in",
            kind=CLIENT_KIND,
            cid=client.cid,
            **optional(name=client.name),
            acc=account.name,
            subj=shown(subject),
            **optional(error=error),
        )

    def _add(self, label: str, /, **parts: Any) -> Event:
        event = {"type": label, "ts": self._broker.wall_ns(), **parts}
        self.events.append(event)
        return event

    def refused(self, text: str) -> None:
        """It may not be published."""
        self._ingress["error"] = text

    def mapped(self, to: str) -> None:
        self._add("sm", to=to)

    def imported(self, account: str, subject: str, to: str) -> None:
        """It goes to a service of another account, which does not tell what it does."""
        self._add("si", acc=account, **{"from": subject}, to=to)

    def reached(self, client: Client, subject: bytes, queue: bytes, error: str) -> None:
        """A subscription gets it, or does not because of `error`."""
        self._add(
            "eg",
            kind=CLIENT_KIND,
            cid=client.cid,
            **optional(name=client.name),
            sub=shown(subject),
            **optional(queue=shown(queue), error=error),
        )

    # A stream

    def at_stream(self, name: str) -> None:
        self._parties += 1
        self._stream = self._add("js", stream=name)

    def taken_by_stream(self, subject: str, no_interest: bool) -> None:
        """It passed all checks, under this subject; nobody may want it."""
        assert self._stream is not None
        self._stream["ts"] = self._broker.wall_ns()
        self._stream |= {"subject": subject, **optional(nointerest=no_interest)}

    def left_stream(self, error: str = "") -> None:
        assert self._stream is not None
        self._stream |= optional(error=error)
        self.left()

    def left(self) -> None:
        """One of those who had it is done."""
        self._parties -= 1
        if self._parties == 0:
            self._broker.hooks.on_traced(self)


@dataclass(frozen=True, slots=True)
class Begun:
    """What is to be done with a message that may ask for a trace."""

    trace: MessageTrace | None = None
    is_over: bool = False  # it goes nowhere
    block: bytes | None = None  # it is not traced, and says so from now on


PASSES: Final = Begun()
OVER: Final = Begun(is_over=True)


def begin(client: Client, subject: bytes, block: bytes, size: int, error: str = "") -> Begun:
    """`error`: why it is refused, which is all that is to be traced."""
    found = traced_fields(block)
    account = client.account
    if found is None or account is None:
        return PASSES
    fields, external = found
    only = not external and first(fields, ONLY).lower() in YES
    unchanged = OVER if only else PASSES
    if first(fields, ORIGIN_ACCOUNT):
        client_log(
            client,
            f"Message tracing disabled because of header {quote(ORIGIN_ACCOUNT)} "
            f"with value={shown(first(fields, ORIGIN_ACCOUNT))}",
        )
        return unchanged if only else Begun(block=disabled(block))
    destination = shown(first(fields, DESTINATION))
    if external:
        destination = account.trace_destination
        if not destination:
            return PASSES
        if client.broker.chance() * PERCENT >= account.trace_percent:
            return Begun(block=disabled(block))
    if not is_valid_literal(destination):
        text = quote(destination.encode("utf-8", "surrogateescape"))
        client_log(client, f"Destination {text} is not valid, won't be able to trace events")
        return unchanged
    if not may_publish(client, destination):
        text = quote(destination.encode("utf-8", "surrogateescape"))
        client.send_error(f"Permissions Violation for Publish to {text}")
        client_log(client, f"Publish Violation - Subject {text}")
        return OVER
    return Begun(MessageTrace(client, destination, subject, fields, size, only=only, error=error))


def client_log(client: Client, text: str) -> None:
    client.broker.hooks.log("error", text, client)


def may_publish(client: Client, subject: str) -> bool:
    if subject.startswith("_GR_."):
        return False
    if subject.startswith("$NRG.") and client.account is not client.broker.system_account:
        return False
    return client.permissions is None or client.permissions.may_publish(subject)


# Headers, read as the reference reads them here


def fields_of(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and values; what is empty is left out."""
    at = len(LINE)
    while (colon := block.find(b":", at)) >= 0:
        end = block.find(b"\r\n", skip_blanks(block, colon + 1))
        if end < 0:
            return
        name, field = block[at:colon], block[colon + 1 : end].strip(b" \t")
        if name and field:
            yield name, field
        at = end + 2


def skip_blanks(block: bytes, at: int) -> int:
    while block[at : at + 1] in (b" ", b"\t"):
        at += 1
    return at


def traced_fields(block: bytes) -> tuple[Fields, bool] | None:
    """All fields, and whether only a `traceparent` asks for the trace; None: nothing does."""
    if not block.startswith(LINE):
        return None
    fields: Fields = {}
    has_parent = False
    for name, field in fields_of(block):
        if name.lower() == PARENT:
            has_parent = has_parent or is_sampled(field)
        elif name == DESTINATION and field == DISABLED:
            return None
        fields.setdefault(name, []).append(field)
    if DESTINATION in fields:
        return fields, False
    return (fields, True) if has_parent else None


def is_sampled(parent: bytes) -> bool:
    """`<version>-<trace id>-<parent id>-<flags>`: the lowest bit of the flags."""
    parts = parent.split(b"-")
    # The reference reads a signed byte: from 80 on it is no number.
    if len(parts) != 4 or not re.fullmatch(rb"\+[0-9a-fA-F]|[0-7][0-9a-fA-F]", parts[3]):
        return False
    return int(parts[3], 16) & 1 == 1


def first(fields: Fields, name: bytes) -> bytes:
    return fields.get(name, [b""])[0]


def encoding_of(fields: Fields) -> str:
    wanted = first(fields, ENCODING).lower()
    if b"snappy" in wanted or b"s2" in wanted:
        return "snappy"
    if b"gzip" in wanted:
        return "gzip"
    return "identity" if wanted else ""


def disabled(block: bytes) -> bytes:
    """The block with a word to every server behind this one that it is not to be traced."""
    while (start := block.find(b"\r\n" + DESTINATION + b":") + 2) > 1:
        block = block[:start] + block[block.find(b"\r\n", start) + 2 :]
    return block[:-2] + DESTINATION + b": " + DISABLED + b"\r\n\r\n"


def shown(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def optional(**parts: Any) -> dict[str, Any]:
    """Only what says something."""
    return {name: part for name, part in parts.items() if part}
