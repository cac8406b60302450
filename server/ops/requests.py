"""The bodies of requests to the system account, and which servers they are meant for."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

if TYPE_CHECKING:
    from server.ops.view import ServerView

T = TypeVar("T", bound=Struct)
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Positive = Annotated[int, Meta(ge=0)]
LONE_SURROGATE: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


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
    offset: Int64 = 0
    limit: Int64 = 0
    cid: Positive = 0
    mqtt_client: str = ""
    state: Int64 = 0
    user: str = ""
    acc: str = ""
    filter_subject: str = ""


class SubszRequest(Filters, kw_only=True):
    offset: Int64 = 0
    limit: Int64 = 0
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
    offset: Int64 = 0
    limit: Int64 = 0


def dashed_js(name: str) -> str:
    return name.replace("_", "-") if name.startswith("js_") else name


class HealthzRequest(Filters, kw_only=True, rename=dashed_js):
    js_enabled: bool = False
    js_enabled_only: bool = False
    js_server_only: bool = False
    js_meta_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


class ProfilezRequest(Filters, kw_only=True):
    name: str = ""
    debug: Int64 = 0
    duration: Int64 = 0


class ClientRequest(Filters, kw_only=True):
    cid: Positive = 0


def read(body: bytes, shape: type[T]) -> T:
    """The body as `shape`; an empty one asks for the defaults, `null` for a field as well."""
    if not body:
        return shape()
    try:
        found = decoded(body)
        if found is None:
            return shape()
        if not isinstance(found, dict):
            raise BadRequest(f"json: cannot unmarshal {type(found).__name__} into an object")
        given = {key.lower(): value for key, value in found.items() if value is not None}
        return msgspec.convert(given, shape)
    except (ValueError, RecursionError) as error:
        raise BadRequest(str(error)) from error


def decoded(body: bytes) -> Any:
    """The value of a JSON text; what is broken inside its texts becomes U+FFFD."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode("utf-8", "replace")
    return json.loads(LONE_SURROGATE.sub(r"\\ufffd", text), parse_constant=refuse_constant)


def refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
