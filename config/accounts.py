"""Who may do what: users, permissions, the authorization block and the accounts block."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from config import rooms
from config.decode import (
    SECONDS,
    TEXT,
    TEXTS,
    Decoder,
    Draft,
    InvalidError,
    Report,
    block,
    decode_block,
    go_duration,
    integer,
    option,
)
from config.limits import HIGH_AUTH_TIMEOUT_NS
from config.mappings import MAPPINGS
from config.options import (
    GLOBAL_ACCOUNT,
    AccountJetStreamOptions,
    AccountOptions,
    PermissionOptions,
    ResponsePermission,
    Secret,
    SubjectPermission,
    User,
)
from config.parser import Node
from config.subjects import is_literal_subject, is_valid_subject

CONNECTION_TYPES: Final = frozenset(
    {"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"}
)
# The first byte of a public key tells what it is for.
_USER_KEY: Final = 20 << 3
_ACCOUNT_KEY: Final = 0
_KEY_BYTES: Final = 35


def _secret(node: Node, report: Report) -> Secret:
    return Secret(TEXT.read(node, report))


SECRET: Final = Decoder(TEXT.expects, _secret)


# --- keys


def is_public_key(text: str, kind: int) -> bool:
    """An nkey: kind byte, 32 bytes of key and a CRC-16, in base 32 without padding."""
    import binascii
    from base64 import b32decode

    try:
        raw = b32decode(text + "=" * (-len(text) % 8))
    except (ValueError, binascii.Error):
        return False
    if len(raw) != _KEY_BYTES or raw[0] != kind:
        return False
    return binascii.crc_hqx(raw[:-2], 0) == int.from_bytes(raw[-2:], "little")


# --- permissions


def _subjects(node: Node, report: Report, queues: bool) -> tuple[str, ...]:
    try:
        subjects: tuple[str, ...] = TEXTS.read(node, report)
    except InvalidError as wrong:
        text = wrong.text or f"expected a subject or an array of subjects, got {node.type_name}"
        raise InvalidError(text, wrong.node or node) from None
    for subject in subjects:
        words = subject.split() if queues and not is_valid_subject(subject) else [subject]
        if len(words) not in (1, 2) or not is_valid_subject(words[0]):
            raise InvalidError(f'subject "{subject}" is not a valid subject', node)
        if len(words) == 2 and not is_valid_subject(words[1]):
            raise InvalidError(f'queue "{words[1]}" is not a valid queue', node)
    return subjects


def _subject_permission(queues: bool) -> Decoder:
    def entries(node: Node, report: Report) -> tuple[str, ...] | None:
        return _subjects(node, report, queues) or None

    keys = block(
        option("allow", to="allow", by=Decoder("subjects", entries)),
        option("deny", to="deny", by=Decoder("subjects", entries)),
    )

    def read(node: Node, report: Report) -> SubjectPermission | None:
        if not isinstance(node.value, dict):
            return SubjectPermission(allow=entries(node, report))
        draft = decode_block(node.value, keys, report)
        return SubjectPermission(**draft) if node.value else None

    return Decoder("a subject, an array of subjects, or a map with allow and deny", read)


def _max_responses(node: Node, report: Report) -> int | None:
    number: int = integer().read(node, report)
    return number or None


def _expires(node: Node, _: Report) -> int | None:
    if type(node.value) is not str:
        raise InvalidError
    return go_duration(node.value) or None


RESPONSES_BLOCK: Final = block(
    option(
        "max",
        "max_msgs",
        "max_messages",
        "max_responses",
        to="max_messages",
        by=Decoder("an integer", _max_responses),
    ),
    option(
        "expires",
        "expiration",
        "ttl",
        to="expires_ns",
        by=Decoder('a duration such as "2m"', _expires),
    ),
)


def _responses(node: Node, report: Report) -> ResponsePermission | None:
    if isinstance(node.value, bool):
        return ResponsePermission() if node.value else None
    if not isinstance(node.value, dict):
        raise InvalidError
    return ResponsePermission(**decode_block(node.value, RESPONSES_BLOCK, report))


PERMISSIONS_BLOCK: Final = block(
    option("publish", "pub", "import", to="publish", by=_subject_permission(queues=False)),
    option("subscribe", "sub", "export", to="subscribe", by=_subject_permission(queues=True)),
    option(
        "allow_responses",
        "publish_allow_responses",
        to="allow_responses",
        by=Decoder("a boolean or a map", _responses),
    ),
)


def _permissions(node: Node, report: Report) -> PermissionOptions:
    if not isinstance(node.value, dict):
        raise InvalidError
    draft = decode_block(node.value, PERMISSIONS_BLOCK, report)
    if draft.get("allow_responses"):
        # Who may answer requests may publish nothing else unless told so.
        publish = draft.get("publish") or SubjectPermission()
        draft["publish"] = SubjectPermission(publish.allow or (), publish.deny)
    return PermissionOptions(**draft)


PERMISSIONS: Final = Decoder("a map of permissions", _permissions)


# --- users


class UserEntry(Struct, frozen=True):
    """A user and the place to point at when it clashes with another one."""

    user: User
    node: Node


def _connection_types(node: Node, report: Report) -> frozenset[str]:
    words = frozenset(word.upper() for word in TEXTS.read(node, report))
    for word in sorted(words - CONNECTION_TYPES):
        raise InvalidError(f'unknown connection type "{word}"')
    return words


def _user_key(node: Node, report: Report) -> str:
    key: str = TEXT.read(node, report)
    if key and not is_public_key(key, _USER_KEY):
        raise InvalidError("not a valid public nkey for a user")
    return key


USER_BLOCK: Final = block(
    option("user", "username", to="name", by=TEXT),
    option("password", "pass", to="password", by=SECRET, secret=True),
    option("nkey", to="nkey", by=Decoder(TEXT.expects, _user_key)),
    option("permissions", "permission", "authorization", to="permissions", by=PERMISSIONS),
    option(
        "allowed_connection_types",
        "connection_types",
        "clients",
        to="allowed_connection_types",
        by=Decoder(TEXTS.expects, _connection_types),
    ),
    option("proxy_required", to="", by=rooms.later("proxies")),
)


def _users(node: Node, report: Report) -> list[UserEntry]:
    if not isinstance(node.value, list):
        raise InvalidError
    entries = []
    for entry in node.value:
        if not isinstance(entry.value, dict):
            report.error(entry, f"expected a user as a map, got {entry.type_name}")
            continue
        before = len(report.problems)
        draft = decode_block(entry.value, USER_BLOCK, report)
        text = "" if len(report.problems) > before else _user_problem(draft)
        if text:
            report.error(entry, text)
        elif len(report.problems) == before:
            entries.append(UserEntry(User(**draft), entry))
    return entries


def _user_problem(draft: Draft) -> str:
    if not draft.get("nkey") and not draft.get("name"):
        return "a user entry requires a user or an nkey"
    if draft.get("nkey") and (draft.get("name") or draft.get("password")):
        return "nkey users do not take usernames or passwords"
    return ""


USERS: Final = Decoder("an array of users", _users)


# --- the authorization block


def _auth_timeout(node: Node, report: Report) -> int | None:
    timeout_ns: int | None = SECONDS.read(node, report)
    if timeout_ns and timeout_ns > HIGH_AUTH_TIMEOUT_NS:
        seconds = timeout_ns / 1e9
        report.warn(
            node,
            f'invalid use of field "timeout": {seconds:g} seconds is high, consider at most 60; '
            "a duration needs quotes: '1m' and not 1m, which is a million",
        )
    return timeout_ns


AUTHORIZATION_BLOCK: Final = block(
    option("user", "username", to="user", by=TEXT),
    option("password", "pass", to="password", by=SECRET, secret=True),
    option("token", to="token", by=SECRET, secret=True),
    option("timeout", to="timeout_ns", by=Decoder(SECONDS.expects, _auth_timeout)),
    option("users", to="users", by=USERS),
    option(
        "default_permissions",
        "default_permission",
        "permissions",
        to="default_permissions",
        by=PERMISSIONS,
    ),
    option("auth_callout", "auth_hook", to="", by=rooms.later("auth_callout", rooms.AUTH_CALLOUT)),
    option("proxy_required", to="", by=rooms.later("proxies")),
)


def _authorization(node: Node, report: Report) -> Draft:
    if not isinstance(node.value, dict):
        raise InvalidError
    draft = decode_block(node.value, AUTHORIZATION_BLOCK, report)
    single = bool(draft.get("user"))
    token = bool(draft.get("token"))
    if token and (single or draft.get("password")):
        report.error(node, "Cannot have a user/pass and token")
    elif single and "users" in draft:
        report.error(node, "Can not have a single user/pass and a users array")
    elif token and "users" in draft:
        report.error(node, "Can not have a token and a users array")
    return {"authorization": Authorization(node, draft)}


class Authorization(Struct, frozen=True):
    node: Node
    draft: Draft


AUTHORIZATION: Final = Decoder("a map", _authorization)


# --- accounts


LIMITS_BLOCK: Final = block(
    option("max_connections", "max_conn", to="max_connections", by=integer(floor=-1)),
    option("max_subscriptions", "max_subs", to="max_subscriptions", by=integer(floor=-1)),
    option("max_payload", "max_pay", to="max_payload_bytes", by=integer(floor=-1)),
    option("max_leafnodes", "max_leafs", to="max_leafnodes", by=integer(floor=-1)),
)


def _limits(node: Node, report: Report) -> Draft:
    if not isinstance(node.value, dict):
        raise InvalidError
    return decode_block(node.value, LIMITS_BLOCK, report)


def _flag(node: Node, _: Report) -> bool:
    if not isinstance(node.value, bool):
        raise InvalidError
    return node.value


def _cluster_traffic(node: Node, _: Report) -> Draft:
    """Which account servers use to replicate streams: one server replicates nothing."""
    if node.value not in ("system", "owner", ""):
        raise InvalidError
    return {}


_SIZE: Final = integer(expects="a size")
JETSTREAM_BLOCK: Final = block(
    option("max_memory", "max_mem", "mem", "memory", to="max_memory_bytes", by=_SIZE),
    option("max_store", "max_file", "max_disk", "store", "disk", to="max_store_bytes", by=_SIZE),
    option("max_streams", "streams", to="max_streams", by=integer()),
    option("max_consumers", "consumers", to="max_consumers", by=integer()),
    option(
        "max_bytes_required",
        "max_stream_bytes",
        "max_bytes",
        to="max_bytes_required",
        by=Decoder("a boolean", _flag),
    ),
    option(
        "memory_max_stream_bytes",
        "mem_max_stream_bytes",
        to="memory_max_stream_bytes",
        by=_SIZE,
    ),
    option(
        "store_max_stream_bytes",
        "disk_max_stream_bytes",
        to="store_max_stream_bytes",
        by=_SIZE,
    ),
    option("max_ack_pending", to="max_ack_pending", by=integer()),
    option("cluster_traffic", to="", by=Decoder('"system" or "owner"', _cluster_traffic)),
)


def _jetstream(node: Node, report: Report) -> AccountJetStreamOptions | None:
    value = node.value
    if isinstance(value, dict):
        return AccountJetStreamOptions(**decode_block(value, JETSTREAM_BLOCK, report))
    return AccountJetStreamOptions() if enabled_word(node) else None


def enabled_word(node: Node) -> bool:
    """A boolean, or one of the words enabled and disabled."""
    if isinstance(node.value, bool):
        return node.value
    word = node.value.lower() if type(node.value) is str else ""
    if word not in ("enabled", "enable", "disabled", "disable"):
        raise InvalidError
    return word.startswith("enable")


def _trace_destination(node: Node, report: Report) -> str:
    subject: str = TEXT.read(node, report)
    if not is_literal_subject(subject):
        raise InvalidError(f'Trace destination "{subject}" is not valid')
    return subject


def _trace_sampling(node: Node, _: Report) -> int:
    percent = node.value
    if type(percent) is str:
        digits = percent.removesuffix("%")
        percent = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if not isinstance(percent, int) or isinstance(percent, bool) or not 1 <= percent <= 100:
        raise InvalidError
    return percent


MESSAGE_TRACE_BLOCK: Final = block(
    option("dest", to="trace_destination", by=Decoder("a subject", _trace_destination)),
    option("sampling", to="trace_percent", by=Decoder('1 to 100, or "25%"', _trace_sampling)),
)


def _message_trace(node: Node, report: Report) -> Draft:
    """Where messages with a sampled `traceparent` are traced to."""
    if not isinstance(node.value, dict):
        return {"trace_destination": _trace_destination(node, report)}
    draft = decode_block(node.value, MESSAGE_TRACE_BLOCK, report)
    if "trace_percent" in draft and "trace_destination" not in draft:
        report.warn(node, "Trace destination sampling ignored since no destination was set")
        del draft["trace_percent"]
    return draft


def _account_key(node: Node, report: Report) -> str:
    key: str = TEXT.read(node, report)
    if not is_public_key(key, _ACCOUNT_KEY):
        raise InvalidError("not a valid public nkey for an account")
    return key


ACCOUNT_BLOCK: Final = block(
    option("nkey", to="nkey", by=Decoder(TEXT.expects, _account_key)),
    option("users", to="users", by=USERS),
    option("default_permissions", to="default_permissions", by=PERMISSIONS),
    option("limits", to="", by=Decoder("a map of limits", _limits)),
    option("jetstream", to="jetstream", by=Decoder('a boolean, "enabled" or a map', _jetstream)),
    option("exports", to="", by=rooms.later("exports", rooms.EXPORT)),
    option("imports", to="", by=rooms.later("imports", rooms.IMPORT)),
    option("mappings", "maps", to="mappings", by=MAPPINGS),
    option("msg_trace", "trace_dest", to="", by=Decoder("a subject or a map", _message_trace)),
)


class Accounts(Struct, frozen=True):
    accounts: tuple[AccountOptions, ...]
    users: list[UserEntry]


def _accounts(node: Node, report: Report) -> dict[str, Accounts]:
    accounts: list[AccountOptions] = []
    users: list[UserEntry] = []
    if isinstance(node.value, list):
        accounts = _account_names(node.value, report)
    elif not isinstance(node.value, dict):
        raise InvalidError
    else:
        for name, entry in node.value.items():
            if not entry.used and _account_is_possible(name, entry, report):
                account, members = _account(name, entry.value, report)  # type: ignore[arg-type]
                accounts.append(account)
                users += members
    return {"accounts_block": Accounts(tuple(accounts), users)}


def _account_names(entries: list[Node], report: Report) -> list[AccountOptions]:
    names: dict[str, Node] = {}
    for entry in entries:
        name = entry.value
        if type(name) is not str:
            report.error(entry, f"expected the name of an account, got {entry.type_name}")
        elif name == GLOBAL_ACCOUNT:
            report.error(entry, f'"{name}" is a Reserved Account')
        elif name in names:
            report.error(entry, f"Duplicate Account Entry: {name}")
        else:
            names[name] = entry
    return [AccountOptions(name=name) for name in names]


def _account_is_possible(name: str, entry: Node, report: Report) -> bool:
    if not isinstance(entry.value, dict):
        report.error(entry, f'expected a map for account "{name}", got {entry.type_name}')
        return False
    if name == GLOBAL_ACCOUNT:
        report.error(entry, f'"{name}" is a Reserved Account')
        return False
    return True


def _account(
    name: str, tree: dict[str, Node], report: Report
) -> tuple[AccountOptions, list[UserEntry]]:
    draft: dict[str, Any] = decode_block(tree, ACCOUNT_BLOCK, report)
    members: list[UserEntry] = draft.pop("users", [])
    owned = [UserEntry(_of_account(entry.user, name), entry.node) for entry in members]
    return AccountOptions(name=name, **draft), owned


def _of_account(user: User, account: str) -> User:
    return replace(user, account=account)


ACCOUNTS: Final = Decoder("a map of accounts or an array of names", _accounts)


def all_users(
    authorization: Authorization | None, accounts: Accounts, report: Report
) -> tuple[User, ...]:
    """Users of every account; a name or nkey is unique over the whole server."""
    entries = list(authorization.draft.get("users", [])) if authorization else []
    entries += accounts.users
    if authorization and accounts.users:
        for field, what in (("user", "single user/pass"), ("token", "token")):
            if authorization.draft.get(field):
                report.error(authorization.node, f"Can not have a {what} and accounts")
    seen: set[str] = set()
    for entry in entries:
        user = entry.user
        identity = user.nkey or user.name
        if identity in seen:
            kind = "nkey" if user.nkey else "user"
            report.error(entry.node, f'Duplicate {kind} "{identity}" detected')
        seen.add(identity)
    return tuple(entry.user for entry in entries)
