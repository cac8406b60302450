"""File and flags to Options. Everything that is wrong is found in one go.

Reading a file (`read_file`) and judging whether its options fit together (`validate`) are two
steps: a syntax test with -t does only the first, a start and a reload do both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from config.accounts import Accounts, Authorization, all_users
from config.decode import Draft, JudgeMapping, Report, accept_mapping, decode_block
from config.digest import digest
from config.duration import format_duration
from config.errors import ConfigError, Problem
from config.limits import SECOND_NS
from config.options import (
    SYSTEM_ACCOUNT,
    AuthOptions,
    HttpOptions,
    JetStreamOptions,
    LogOptions,
    Options,
)
from config.parser import Reader, Tree
from config.schema import TOP

_GROUPS: Final[dict[str, type[Struct]]] = {
    "auth": AuthOptions,
    "log": LogOptions,
    "http": HttpOptions,
    "jetstream": JetStreamOptions,
}
_STORE_DIR_NAMES: Final = ("store_dir", "storedir", "store")


class Loaded(Struct, frozen=True):
    """What a file says: fields by their dotted names, its digest, and what deserves a warning."""

    draft: Draft
    digest: str = ""
    warnings: tuple[Problem, ...] = ()


def read_file(
    path: str,
    environ: Mapping[str, str] = os.environ,
    judge_mapping: JudgeMapping = accept_mapping,
) -> Loaded:
    """Read and check one file. OSError if it cannot be read, ConfigError if it is wrong."""
    tree = Reader(environ).file(path)
    report = Report(judge_mapping)
    if not tree:
        report.warnings.append(Problem(f"{path}: config has no values or is empty"))
    draft = _decode(tree, report)
    if report.problems:
        raise ConfigError(report.problems, report.warnings)
    draft["config_file"] = path
    return Loaded(draft, digest(tree), tuple(report.warnings))


def load(
    path: str,
    flags: Draft,
    environ: Mapping[str, str] = os.environ,
    judge_mapping: JudgeMapping = accept_mapping,
) -> tuple[Options, tuple[Problem, ...]]:
    """Options of a file (empty: no file) and flags, which win; and the file's warnings."""
    loaded = read_file(path, environ, judge_mapping) if path else Loaded({})
    options = build({**loaded.draft, **flags, "config_digest": loaded.digest})
    validate(options)
    return options, loaded.warnings


def build(draft: Draft) -> Options:
    """Fields by dotted names, completed by the defaults that depend on other fields."""
    fields: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {name: {} for name in _GROUPS}
    for name, value in draft.items():
        group, dot, field = name.partition(".")
        if dot:
            groups[group][field] = value
        else:
            fields[name] = value
    fields["host"] = fields.get("host") or "0.0.0.0"
    fields["port"] = fields.get("port") or 4222
    fields["system_account"] = fields.get("system_account") or SYSTEM_ACCOUNT
    groups["http"]["host"] = groups["http"].get("host") or fields["host"]
    tls = fields.get("tls")
    if tls is not None:
        groups["auth"].setdefault("timeout_ns", tls.timeout_ns + SECOND_NS)
    fields.update({name: kind(**groups[name]) for name, kind in _GROUPS.items()})
    return Options(**fields)


def _decode(tree: Tree, report: Report) -> Draft:
    draft = decode_block(tree, TOP, report)
    authorization: Authorization | None = draft.pop("authorization", None)
    accounts: Accounts = draft.pop("accounts_block", Accounts((), []))
    draft["accounts"] = accounts.accounts
    draft["auth.users"] = all_users(authorization, accounts, report)
    if authorization is not None:
        draft["auth.defined"] = True
        fields = authorization.draft.items()
        draft.update({f"auth.{name}": value for name, value in fields if name != "users"})
    store_dir = draft.pop("store_dir", "")
    if store_dir and draft.get("jetstream.store_dir"):
        node = next(tree[name] for name in tree if name.lower() in _STORE_DIR_NAMES)
        report.error(node, "Duplicate 'store_dir' configuration")
    elif store_dir:
        draft["jetstream.store_dir"] = store_dir
    return draft


def validate(options: Options) -> None:
    """Refuse options that do not fit together."""
    texts = [
        *_limit_problems(options),
        *_listener_problems(options),
        *_account_problems(options),
        *_jetstream_problems(options),
    ]
    if texts:
        raise ConfigError([Problem(text) for text in texts])


def _limit_problems(options: Options) -> list[str]:
    texts = []
    duration_ns, grace_ns = options.lame_duck_duration_ns, options.lame_duck_grace_period_ns
    if grace_ns >= duration_ns:
        texts.append(
            f"lame duck grace period ({format_duration(grace_ns)}) should be strictly lower "
            f"than lame duck duration ({format_duration(duration_ns)})"
        )
    if options.max_payload_bytes > options.max_pending_bytes:
        texts.append(
            f"max_payload ({options.max_payload_bytes}) cannot be higher than "
            f"max_pending ({options.max_pending_bytes})"
        )
    return texts


def _listener_problems(options: Options) -> list[str]:
    texts = []
    http = options.http
    if http.port and http.tls_port:
        texts.append(f"can't specify both HTTP ({http.port}) and HTTPs ({http.tls_port}) ports")
    if http.tls_port and options.tls is None:
        texts.append("https needs a tls block with a certificate")
    if options.tls is not None and not options.tls.certificates:
        texts.append("tls needs a certificate: cert_file and key_file, or certs")
    return texts


def _account_problems(options: Options) -> list[str]:
    texts = []
    names = {account.name for account in options.accounts} | {SYSTEM_ACCOUNT}
    if options.system_account not in names and not options.no_system_account:
        texts.append(f'system account "{options.system_account}" is not among the accounts')
    wanted = options.auth.no_auth_user
    if wanted and not options.auth.users:
        texts.append(f'no_auth_user: "{wanted}" present, but users/nkeys are not defined')
    elif wanted and all(wanted not in (user.name, user.nkey) for user in options.auth.users):
        texts.append(
            f'no_auth_user: "{wanted}" not present as user or nkey in authorization block '
            "or account configuration"
        )
    return texts


def _jetstream_problems(options: Options) -> list[str]:
    texts = []
    domain = options.jetstream.domain
    if domain and (domain.split() != [domain] or "" in domain.split(".")):
        texts.append(f'invalid domain name: derived "$JS.{domain}.API.>" is not a valid subject')
    elif any(mark in domain for mark in ".*>"):
        texts.append("invalid domain name: may not contain ., * or >")
    with_jetstream = {account.name for account in options.accounts if account.jetstream is not None}
    if options.system_account in with_jetstream:
        texts.append("Not allowed to enable JetStream on the system account")
    return texts
