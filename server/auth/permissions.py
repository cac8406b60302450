"""From the permissions of a configured user to the compiled object that its clients share."""

from __future__ import annotations

from typing import Any

from config.options import PermissionOptions, ResponsePermission, SubjectPermission
from server.core._permissions import Permissions

DEFAULT_RESPONSES_MAX = 1
DEFAULT_RESPONSES_EXPIRES_NS = 120 * 1_000_000_000


def compile_permissions(options: PermissionOptions | None) -> Permissions | None:
    """None when nothing is restricted."""
    if options is None:
        return None
    publish = options.publish or SubjectPermission()
    subscribe = options.subscribe or SubjectPermission()
    pub_allow = publish.allow
    responses_max = responses_expires_ns = 0
    if options.allow_responses is not None:
        # Who may only answer may publish nothing else, unless the file says so.
        pub_allow = () if pub_allow is None else pub_allow
        responses_max, responses_expires_ns = response_limits(options.allow_responses)
    return Permissions(
        pub_allow=as_list(pub_allow),
        pub_deny=list(publish.deny),
        sub_allow=as_list(subscribe.allow),
        sub_deny=list(subscribe.deny),
        responses_max=responses_max,
        responses_expires_ns=responses_expires_ns,
    )


def shown_permissions(options: PermissionOptions | None) -> dict[str, Any] | None:
    """What a user may do, as it is told to that user; None when nothing is restricted."""
    if options is None:
        return None
    shown: dict[str, Any] = {}
    for key, side in (("publish", options.publish), ("subscribe", options.subscribe)):
        if side is not None:
            lists = {"allow": list(side.allow or ()), "deny": list(side.deny)}
            shown[key] = {name: entries for name, entries in lists.items() if entries}
    if options.allow_responses is not None:
        most, expires_ns = response_limits(options.allow_responses)
        shown["responses"] = {"max": most, "ttl": expires_ns}
    return shown


def response_limits(allowed: ResponsePermission) -> tuple[int, int]:
    """Zero means the default, negative means without a limit."""
    return (
        allowed.max_messages or DEFAULT_RESPONSES_MAX,
        allowed.expires_ns or DEFAULT_RESPONSES_EXPIRES_NS,
    )


def as_list(entries: tuple[str, ...] | None) -> list[str] | None:
    return None if entries is None else list(entries)
