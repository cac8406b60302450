"""The bodies of requests to the system account, and which servers they are meant for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from server.ops.view import ServerView

T = TypeVar("T", bound=Struct)


class BadRequest(Exception):
    """The body is not what is asked for; the text goes to the requester with code 400."""


class Filters(Struct, kw_only=True):
    """What a server must be to answer."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = []
    domain: str = ""

    def passes(self, view: ServerView) -> bool:
        for wanted, own in (
            (self.server_name, view.server_name),
            (self.host, view.options.host),
            (self.cluster, ""),
        ):
            if wanted and (wanted != own if self.exact_match else wanted not in own):
                return False
        if any(tag.lower() not in view.options.server_tags for tag in self.tags):
            return False
        return not self.domain or self.domain == view.options.jetstream.domain


class ConnzRequest(Filters, kw_only=True):
    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = 0
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


class SubszRequest(Filters, kw_only=True):
    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""


class AccountzRequest(Filters, kw_only=True):
    account: str = ""


class AccountStatzRequest(Filters, kw_only=True):
    accounts: list[str] = []
    include_unused: bool = False


class JszRequest(Filters, kw_only=True):
    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    stream_leader_only: bool = False
    raft: bool = False
    offset: int = 0
    limit: int = 0


class HealthzRequest(Filters, kw_only=True, rename=lambda name: name.replace("js_", "js-")):
    js_enabled: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


class ProfilezRequest(Filters, kw_only=True):
    name: str = ""
    debug: int = 0
    duration: int = 0


class ClientRequest(Filters, kw_only=True):
    cid: int = 0


def read(body: bytes, shape: type[T]) -> T:
    """The body as `shape`; an empty one asks for the defaults, `null` for a field as well."""
    if not body:
        return shape()
    try:
        found: Any = msgspec.json.decode(body)
        if not isinstance(found, dict):
            raise BadRequest(f"json: cannot unmarshal {type(found).__name__} into an object")
        given = {key.lower(): value for key, value in found.items() if value is not None}
        return msgspec.convert(given, shape)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(str(error)) from error
