"""Pull requests: what their bodies ask for, why one is refused, and in which order they are served.

Pure: the time is an argument, interest and delivery are the caller's. A status is its code and text
as they stand on the wire; clients compare the texts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Struct

from server.jetstream.consumer_config import ConsumerConfig
from server.jetstream.gojson import DURATION, FLAG, INT, TEXT, decode_one
from server.jetstream.goscan import JsonError
from server.jetstream.gotime import duration_text

PRIORITY_MAX: Final = 9
# Longer ones do not fit an integer of the reference, which then takes one message.
NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}")
# The reference decodes through a pooled pointer: its texts then name no type.
GO_NAME: Final = ""


class PullRequest(Struct):
    """One request, as on the wire; times are durations in nanoseconds."""

    expires: Annotated[int, DURATION] = 0
    batch: Annotated[int, INT] = 0
    max_bytes: Annotated[int, INT] = 0
    no_wait: Annotated[bool, FLAG] = False
    idle_heartbeat: Annotated[int, DURATION] = 0
    group: Annotated[str, TEXT] = ""
    min_pending: Annotated[int, INT] = 0
    min_ack_pending: Annotated[int, INT] = 0
    id: Annotated[str, TEXT] = ""
    priority: Annotated[int, INT] = 0


class Refused(Exception):
    """A request that is not taken: the status to answer with."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


def status(code: int, text: str, messages: int | None = None, size: int = 0) -> bytes:
    """A status message's header block; `messages` and `size` are what a request did not get."""
    rest = ""
    if messages is not None:
        rest = f"Nats-Pending-Messages: {messages}\r\nNats-Pending-Bytes: {size}\r\n"
    return f"NATS/1.0 {code} {text}\r\n{rest}\r\n".encode()


def parse(body: bytes) -> PullRequest:
    """What a body asks for: nothing is one message, a number a batch. Refused when it is wrong."""
    asked = body.strip()
    if not asked.startswith(b"{"):
        # Neither JSON nor a number asks for one message, as with the reference.
        return PullRequest(batch=int(asked) if NUMBER.fullmatch(asked) else 1)
    try:
        request = decode_one(PullRequest, asked, GO_NAME)
    except JsonError as error:
        raise Refused(400, f"Bad Request - {error}") from error
    if request.idle_heartbeat > 0 and request.idle_heartbeat * 2 > request.expires:
        raise Refused(400, "Bad Request - heartbeat value too large")
    return request


def check(request: PullRequest, config: ConsumerConfig, is_json: bool, pinned_id: str = "") -> None:
    """Refused when the consumer's configuration does not allow it, first reason first."""
    if config.is_push:
        raise Refused(409, "Consumer is push based")
    check_limits(request, config)
    # A request that is no JSON names no group, and the reference lets it pass.
    if is_json:
        check_group(request, config, pinned_id)


def check_limits(request: PullRequest, config: ConsumerConfig) -> None:
    if 0 < config.max_batch < request.batch:
        raise Refused(409, f"Exceeded MaxRequestBatch of {config.max_batch}")
    if 0 < config.max_expires < request.expires:
        most = duration_text(config.max_expires)
        raise Refused(409, f"Exceeded MaxRequestExpires of {most}")
    if 0 < config.max_bytes < request.max_bytes:
        raise Refused(409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}")


def check_group(request: PullRequest, config: ConsumerConfig, pinned_id: str) -> None:
    policy = config.priority_policy
    if (request.min_pending or request.min_ack_pending) and policy != "overflow":
        raise Refused(400, "Bad Request - Not a Overflow Priority consumer")
    if request.id and policy != "pinned_client":
        raise Refused(400, "Bad Request - Not a Pinned Client Priority consumer")
    if not 0 <= request.priority <= PRIORITY_MAX:
        raise Refused(400, "Bad Request - Priority must be between 0 and 9")
    if policy == "none":
        return
    if not request.group:
        raise Refused(400, "Bad Request - Priority Group missing")
    if request.group not in config.priority_groups:
        raise Refused(400, "Bad Request - Invalid Priority Group")
    if pinned_id and request.id and request.id != pinned_id:
        raise Refused(423, "Nats-Pin-Id mismatch")


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that was taken; times are of a clock that only grows, 0 is never."""

    reply: str
    request: PullRequest
    messages: int
    size: int
    received_ns: int
    expires_ns: int
    heartbeat_ns: int
    delivered: int = 0


class WaitingQueue:
    """Served round-robin, one message each; by priority first where the policy says so. Bounded:
    a request beyond `most` is refused."""

    def __init__(self, most: int, by_priority: bool = False) -> None:
        self._most = most
        self._by_priority = by_priority
        self._items: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._items)

    def add(self, waiting: Waiting) -> None:
        if len(self._items) >= self._most:
            raise Refused(409, "Exceeded MaxWaiting")
        if not self._by_priority:
            self._items.append(waiting)
            return
        at = len(self._items)
        for index, other in enumerate(self._items):
            if other.request.priority > waiting.request.priority:
                at = index
                break
        self._items.insert(at, waiting)

    def head(self) -> Waiting | None:
        return self._items[0] if self._items else None

    def cycle(self) -> None:
        """The head cannot be served now: behind all others."""
        self._items.rotate(-1)

    def take(self) -> Waiting:
        """One message for the head; it goes behind its equals, or leaves when that was its last."""
        waiting = self._items.popleft()
        waiting.messages -= 1
        waiting.delivered += 1
        if waiting.messages > 0:
            self.add(waiting)
        return waiting

    def remove(self, waiting: Waiting) -> None:
        self._items.remove(waiting)


def waiting_for(reply: str, request: PullRequest, now_ns: int) -> Waiting:
    beat = request.idle_heartbeat
    return Waiting(
        reply,
        request,
        request.batch,
        request.max_bytes,
        now_ns,
        now_ns + request.expires if request.expires else 0,
        now_ns + beat if beat > 0 else 0,
    )
