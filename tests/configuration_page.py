"""Writes docs/configuration.md from the tables that the server itself reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from config import accounts, flags, mappings, schema, tls
from config.decode import Block, Option
from config.duration import format_duration
from config.options import (
    AccountJetStreamOptions,
    AccountOptions,
    AuthOptions,
    Options,
    ResponsePermission,
    Secret,
    TlsOptions,
)
from config.reload import RELOADABLE, fields

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
INTRODUCTION = Path(__file__).parent.parent / "docs" / "configuration.intro.md"
# Options whose decoder sets several fields: the one whose default and reloading they share.
MAIN_FIELD = {
    "listen": "port",
    "trace_verbose": "log.trace_verbose",
    "trace_headers": "log.trace_headers",
    "http": "http.port",
    "https": "http.tls_port",
    "authorization": "auth.users",
    "accounts": "accounts",
    "jetstream": "jetstream.enabled",
    "sync_interval": "jetstream.sync_always",
    "store_dir": "jetstream.store_dir",
}


def render() -> str:
    top = fields(Options())
    parts = [INTRODUCTION.read_text().rstrip()]
    for title, options in schema.GROUPS.items():
        if title != "Not yet":
            parts.append(f"## {title}\n{table(options, top, reloads=True)}")
    streams = {**top, "jetstream.limits": "", "jetstream.batch": ""}
    blocks: list[tuple[str, Block, dict[str, Any]]] = [
        ("jetstream", schema.JETSTREAM, streams),
        ("jetstream limits", schema.JETSTREAM_LIMITS, streams),
        ("jetstream limits batch", schema.JETSTREAM_BATCH, streams),
        ("authorization", accounts.AUTHORIZATION_BLOCK, defaults(AuthOptions())),
        ("user", accounts.USER_BLOCK, {}),
        ("permissions", accounts.PERMISSIONS_BLOCK, {}),
        ("allow_responses", accounts.RESPONSES_BLOCK, defaults(ResponsePermission())),
        ("account", accounts.ACCOUNT_BLOCK, defaults(AccountOptions(name=""))),
        ("a mapping's destination", mappings.DESTINATION_BLOCK, {}),
        ("account msg_trace", accounts.MESSAGE_TRACE_BLOCK, defaults(AccountOptions(name=""))),
        ("account limits", accounts.LIMITS_BLOCK, defaults(AccountOptions(name=""))),
        ("account jetstream", accounts.JETSTREAM_BLOCK, defaults(AccountJetStreamOptions())),
        ("tls", tls.TLS_BLOCK, defaults(TlsOptions())),
    ]
    for name, known, values in blocks:
        parts.append(f"## Inside: {name}\n{table(unique(known.values()), values, reloads=False)}")
    later = ", ".join(f"`{option.names[0]}`" for option in schema.GROUPS["Not yet"])
    parts.append(f"## Not yet\nKnown by name and refused: {later}.")
    parts.append(f"## Flags\n```{flags.usage(flags.COMMAND)}```")
    return "\n\n".join(parts) + "\n"


def defaults(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def unique(options: Iterable[Option]) -> list[Option]:
    return list({option.names: option for option in options}.values())


def table(options: Iterable[Option], values: dict[str, Any], reloads: bool) -> str:
    lines = ["| Option | Value | Default |", "|---|---|---|"]
    if reloads:
        lines = ["| Option | Value | Default | Reload |", "|---|---|---|---|"]
    for option in options:
        field = option.field or MAIN_FIELD.get(option.names[0], "")
        field = MAIN_FIELD.get(field, field)
        names = ", ".join(f"`{name}`" for name in option.names)
        row = [names, option.decoder.expects, shown(field, values.get(field, ""))]
        if reloads:
            row.append("yes" if field in RELOADABLE else "")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def shown(field: str, value: Any) -> str:
    if value is None or value == () or value == {} or value == frozenset():
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Secret):
        return ""
    return format_duration(value) if field.endswith("_ns") else str(value)


if __name__ == "__main__":
    PAGE.write_text(render())
    print(f"wrote {PAGE.name}")
