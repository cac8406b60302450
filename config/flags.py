"""The command line: every flag of a nats-server, with its spellings, words and error texts."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from config.decode import Draft
from config.options import CertificatePair, Secret, TlsOptions
from config.tls import CURVES, INSECURE_CIPHERS, SECURE_CIPHERS

COMMAND: Final = "martlet"
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")
_MAX_INT: Final = 2**63
_PORTS: Final = {"port": "port", "http_port": "http.port", "https_port": "http.tls_port"}


class UsageError(Exception):
    """A flag that does not exist or has no such value: print it, then the usage, and exit 0."""


class FlagError(Exception):
    """The flags make no sense together: `name: text` and exit 1."""


class Command(Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    # "serve", "version", "help", "help_tls", "check" or "signal"
    action: str = "serve"
    name: str = COMMAND
    config_file: str = ""
    # Fields of Options that flags set; they win over the file, also after each reload.
    draft: Draft = {}
    signal: str = ""
    # A pid, the path of a pid file, or empty.
    signal_target: str = ""


class Flag(Struct, frozen=True):
    """One flag: `kind` is "text", "integer" or "boolean"; `field` a field of Options or a word."""

    names: tuple[str, ...]
    kind: str
    field: str
    argument: str
    help: str


def _flag(*names: str, kind: str, to: str, takes: str = "", says: str = "") -> Flag:
    return Flag(names, kind, to, takes, says)


_SERVER: Final = (
    _flag(
        "a",
        "addr",
        "net",
        kind="text",
        to="host",
        takes="<host>",
        says="Address to listen on (default: 0.0.0.0)",
    ),
    _flag(
        "p",
        "port",
        kind="integer",
        to="port",
        takes="<port>",
        says="Port for clients, -1 for a free one (default: 4222)",
    ),
    _flag(
        "n",
        "name",
        "server_name",
        kind="text",
        to="server_name",
        takes="<name>",
        says="Name of the server (default: its id)",
    ),
    _flag(
        "P", "pid", kind="text", to="pid_file", takes="<file>", says="Write the process id there"
    ),
    _flag(
        "m",
        "http_port",
        kind="integer",
        to="http.port",
        takes="<port>",
        says="Port for monitoring over HTTP",
    ),
    _flag(
        "ms",
        "https_port",
        kind="integer",
        to="http.tls_port",
        takes="<port>",
        says="Port for monitoring over HTTPS",
    ),
    _flag(
        "c",
        "config",
        kind="text",
        to="=config_file",
        takes="<file>",
        says="Configuration file (NATS grammar, or YAML if it ends in .yaml or .yml)",
    ),
    _flag("t", kind="boolean", to="=check", says="Test the configuration file and exit"),
    _flag(
        "sl",
        "signal",
        kind="text",
        to="=signal",
        takes="<signal>[=<pid>]",
        says="Signal a running server: ldm, stop, quit, term, reopen or reload; "
        "<pid> is a number or a pid file",
    ),
    _flag(
        "client_advertise",
        kind="text",
        to="client_advertise",
        takes="<host:port>",
        says="Address that clients are told",
    ),
    _flag(
        "ports_file_dir",
        kind="text",
        to="ports_file_dir",
        takes="<dir>",
        says="Write <executable>_<pid>.ports there",
    ),
)
_LOGGING: Final = (
    _flag("l", "log", kind="text", to="log.file", takes="<file>", says="Log to this file"),
    _flag(
        "T",
        "logtime",
        kind="boolean",
        to="log.logtime",
        says="Show the time (default: true)",
    ),
    _flag("logtime_utc", kind="boolean", to="log.logtime_utc", says="That time in UTC"),
    _flag("s", "syslog", kind="boolean", to="log.syslog", says="Log to syslog"),
    _flag(
        "r",
        "remote_syslog",
        kind="text",
        to="log.remote_syslog",
        takes="<url>",
        says="Log to this syslog server (udp://localhost:514)",
    ),
    _flag("D", "debug", kind="boolean", to="log.debug", says="Log debugging output"),
    _flag("V", "trace", kind="boolean", to="log.trace", says="Log the protocol"),
    _flag("VV", kind="boolean", to="log.trace log.trace_verbose", says="The system account too"),
    _flag("DV", kind="boolean", to="log.debug log.trace", says="Debug and trace"),
    _flag(
        "DVV",
        kind="boolean",
        to="log.debug log.trace log.trace_verbose",
        says="Debug and verbose trace",
    ),
    _flag(
        "log_size_limit",
        kind="integer",
        to="log.file_size_limit_bytes",
        takes="<bytes>",
        says="Rotate the log file at this size (default: never)",
    ),
    _flag(
        "max_traced_msg_len",
        kind="integer",
        to="log.max_traced_message_bytes",
        takes="<bytes>",
        says="Show so much of a payload (default: all)",
    ),
    _flag(
        "log_format",
        kind="text",
        to="log.format",
        takes="<text|json>",
        says="How a log line looks (default: text)",
    ),
)
_STREAMS: Final = (
    _flag("js", "jetstream", kind="boolean", to="jetstream.enabled", says="Enable JetStream"),
    _flag(
        "sd",
        "store_dir",
        kind="text",
        to="jetstream.store_dir",
        takes="<dir>",
        says="Folder for the streams",
    ),
)
_AUTHORIZATION: Final = (
    _flag("user", kind="text", to="auth.user", takes="<user>", says="User that clients must give"),
    _flag(
        "pass", kind="text", to="auth.password", takes="<password>", says="Password of that user"
    ),
    _flag("auth", kind="text", to="auth.token", takes="<token>", says="Token clients must give"),
)
_TLS: Final = (
    _flag("tls", kind="boolean", to="=tls", says="Use TLS (false: no TLS, whatever the file says)"),
    _flag("tlscert", kind="text", to="=tlscert", takes="<file>", says="Certificate"),
    _flag("tlskey", kind="text", to="=tlskey", takes="<file>", says="Its private key"),
    _flag("tlsverify", kind="boolean", to="=tlsverify", says="Demand certificates from clients"),
    _flag("tlscacert", kind="text", to="=tlscacert", takes="<file>", says="Who signs those"),
)
_CLUSTER: Final = (
    _flag("routes", kind="text", to="=routes", takes="<url, url>", says="Servers to connect to"),
    _flag(
        "cluster",
        "cluster_listen",
        kind="text",
        to="=cluster",
        takes="<url>",
        says="Address for other servers",
    ),
    _flag("cluster_name", kind="text", to="=cluster_name", takes="<name>", says="Its name"),
    _flag("no_advertise", kind="boolean", to="=no_advertise", says="Tell clients of no others"),
    _flag(
        "cluster_advertise",
        kind="text",
        to="=cluster_advertise",
        takes="<host:port>",
        says="Address that other servers are told",
    ),
    _flag(
        "connect_retries",
        kind="integer",
        to="=connect_retries",
        takes="<n>",
        says="Attempts to reach a server heard of",
    ),
)
_PROFILING: Final = (
    _flag("profile", kind="integer", to="=profile", takes="<port>", says="Not supported yet"),
)
_COMMON: Final = (
    _flag("h", "help", kind="boolean", to="=help", says="Show this"),
    _flag("v", "version", kind="boolean", to="=version", says="Show the version"),
    _flag("help_tls", kind="boolean", to="=help_tls", says="Show the names of ciphers and curves"),
)
GROUPS: Final = {
    "Server": _SERVER,
    "Logging": _LOGGING,
    "JetStream": _STREAMS,
    "Authorization": _AUTHORIZATION,
    "TLS": _TLS,
    "Cluster": _CLUSTER,
    "Profiling": _PROFILING,
    "Common": _COMMON,
}
_FLAGS: Final = {name: flag for group in GROUPS.values() for flag in group for name in flag.names}
_SECRETS: Final = ("auth.password", "auth.token")
_NOT_YET: Final = (
    "routes",
    "cluster",
    "cluster_name",
    "no_advertise",
    "cluster_advertise",
    "connect_retries",
    "profile",
)


def parse_flags(arguments: Sequence[str], started_as: str = COMMAND) -> Command:
    """What `arguments` (without the program's own name) ask for."""
    name = posixpath.basename(started_as) or COMMAND
    given, rest = _split(arguments)
    for action in ("version", "help", "help_tls"):
        if given.get("=" + action):
            return Command(action=action, name=name)
    if rest:
        word = rest[0].lower()
        if word not in ("version", "help"):
            raise FlagError(f'unrecognized command: "{rest[0]}"')
        return Command(action=word, name=name)
    if given.get("=signal"):
        return _signal(name, given["=signal"])
    config_file = given.get("=config_file", "")
    if given.get("=check"):
        if not config_file:
            raise FlagError("must specify [-c, --config] option to check configuration file syntax")
        return Command(action="check", name=name, config_file=config_file)
    return Command(name=name, config_file=config_file, draft=_draft(given))


def _split(arguments: Sequence[str]) -> tuple[dict[str, Any], Sequence[str]]:
    """Values by field (later ones win), and what follows the flags."""
    given: dict[str, Any] = {}
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if len(argument) < 2 or not argument.startswith("-"):
            break
        at += 1
        if argument == "--":
            break
        text = argument[2:] if argument.startswith("--") else argument[1:]
        if not text or text[0] in "-=":
            raise UsageError(f"bad flag syntax: {argument}")
        name, has_value, value = text.partition("=")
        flag = _FLAGS.get(name)
        if flag is None:
            raise UsageError(f"flag provided but not defined: -{name}")
        if not has_value and flag.kind != "boolean":
            if at == len(arguments):
                raise UsageError(f"flag needs an argument: -{name}")
            value, at = arguments[at], at + 1
        read = _READERS[flag.kind]
        for field in flag.field.split():
            given[field] = read(name, value if has_value or flag.kind != "boolean" else "true")
    return given, arguments[at:]


def _read_boolean(name: str, text: str) -> bool:
    if text not in _TRUE + _FALSE:
        raise UsageError(f'invalid boolean value "{text}" for -{name}: parse error')
    return text in _TRUE


def _read_integer(name: str, text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    digits = text[1:] if text[:1] in ("-", "+") else text
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        digits = "0o" + digits[1:]
    try:
        number = sign * int(digits, 0) if digits[:1].isdigit() else None
    except ValueError:
        number = None
    if number is None:
        raise UsageError(f'invalid value "{text}" for flag -{name}: parse error')
    if not -_MAX_INT <= number < _MAX_INT:
        raise UsageError(f'invalid value "{text}" for flag -{name}: value out of range')
    return number


def _read_text(_: str, text: str) -> str:
    return text


_READERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "boolean": _read_boolean,
    "integer": _read_integer,
    "text": _read_text,
}


def _signal(name: str, text: str) -> Command:
    word, *targets = text.split("=")
    if len(targets) > 1:
        raise FlagError(f"invalid signal parameters: [{' '.join(targets[1:])}]")
    return Command(action="signal", name=name, signal=word, signal_target="".join(targets))


def _draft(given: dict[str, Any]) -> Draft:
    draft: Draft = {field: value for field, value in given.items() if not field.startswith("=")}
    for field in _SECRETS:
        if field in draft:
            draft[field] = Secret(draft[field])
    if draft.get("log.format", "text") not in ("text", "json"):
        raise FlagError(f'--log_format must be text or json, got "{draft["log.format"]}"')
    if " " in draft.get("server_name", ""):
        raise FlagError("server name cannot contain spaces")
    for flag, field in _PORTS.items():
        if not -1 <= draft.get(field, 0) <= 65535:
            raise FlagError(f"--{flag} is from -1 (a free one) to 65535, got {draft[field]}")
    if given.get("=routes") and not given.get("=cluster"):
        raise FlagError("solicited routes require cluster capabilities, e.g. --cluster")
    for word in _NOT_YET:
        if given.get("=" + word):
            raise FlagError(f"--{word} is not supported yet")
    if any(field.startswith("=tls") for field in given):
        draft["tls"] = _tls(given)
    return draft


def _tls(given: dict[str, Any]) -> TlsOptions | None:
    """What the TLS flags say; they replace the file's tls block altogether."""
    if given.get("=tls") is False:
        return None
    if not given.get("=tlscert"):
        raise FlagError("TLS Server certificate must be present and valid")
    if not given.get("=tlskey"):
        raise FlagError("TLS Server private key must be present and valid")
    return TlsOptions(
        certificates=(CertificatePair(given["=tlscert"], given["=tlskey"]),),
        ca_file=given.get("=tlscacert", ""),
        verify=given.get("=tlsverify", False),
    )


# --- texts

# Each with arguments of its own, which are none of the server's business.
COMMANDS = {
    "analytics": "Tables, reports and SQL over what streams hold",
    "archive": "Copy sealed blocks to an object store or a folder",
    "export": "Tables of messages (Parquet, Iceberg, Delta), each exactly once",
}


def usage(name: str) -> str:
    lines = ["", f"Usage: {name} [options]", f"       {name} {'|'.join(COMMANDS)} --help"]
    for title, flags in GROUPS.items():
        lines += ["", f"{title} Options:"]
        lines += [_usage_line(flag) for flag in flags]
    lines += ["", "Commands that read a store directory, beside a server or without one:"]
    lines += [f"{'    ' + command:<38} {about}" for command, about in COMMANDS.items()]
    return "\n".join([*lines, ""])


def _usage_line(flag: Flag) -> str:
    spellings = [f"-{name}" if _is_short(name) else f"--{name}" for name in flag.names]
    indent = " " * 4 if _is_short(flag.names[0]) else " " * 8
    left = indent + ", ".join(spellings) + (f" {flag.argument}" if flag.argument else "")
    return f"{left:<38} {flag.help}"


def _is_short(name: str) -> bool:
    return len(name) <= 2 or name.isupper()


def tls_usage() -> str:
    lines = [
        "TLS belongs in a tls block of the configuration file, for example:",
        "",
        "    tls {",
        '        cert_file: "./server-cert.pem"',
        '        key_file:  "./server-key.pem"',
        '        ca_file:   "./ca.pem"',
        "        verify:    true",
        "    }",
        "",
        "Available cipher suites include:",
        *(f"    {cipher}" for cipher in SECURE_CIPHERS),
        *(f"    {cipher} (needs allow_insecure_cipher_suites)" for cipher in INSECURE_CIPHERS),
        "",
        "Available curve preferences include:",
        *(f"    {curve}" for curve in CURVES),
        "",
    ]
    return "\n".join(lines)


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """The same arguments without the values of secret flags, for showing them to somebody."""
    redacted: list[str] = []
    hide_next = False
    for argument in arguments:
        name, has_value, _ = argument.lstrip("-").partition("=")
        secret = argument.startswith("-") and name in ("user", "pass", "auth", "routes", "cluster")
        secret = secret or name == "cluster_listen"
        if hide_next:
            redacted.append("[REDACTED]")
            hide_next = False
        elif secret and has_value:
            redacted.append(argument.partition("=")[0] + "=[REDACTED]")
        else:
            redacted.append(argument)
            hide_next = secret
    return redacted
