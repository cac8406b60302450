"""The `martlet` command: flags to options, then one server until it ends.

It answers to the name that it is started by: a link called `nats-server` to it is one.
"""

from __future__ import annotations

import gc
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from config.flags import (
    COMMANDS,
    Command,
    FlagError,
    UsageError,
    parse_flags,
    redact_arguments,
    tls_usage,
    usage,
)
from server.version import COMPAT_VERSION, MARTLET_VERSION

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from config.options import Options
    from server.app import App
    from server.ops.logging import Logger

# A collection walks every object made since the last one: few, and never the ones of the start.
GC_THRESHOLDS = (50_000, 50, 1_000)


class MainError(Exception):
    """Ends the command with `<name>: <text>` and status 1."""


def main() -> int:
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        # They read the store's directory from outside, in processes of their own.
        from pyspark_jetstream import cli

        return cli.main(sys.argv[1:], modest=True)
    gc.disable()
    # Until the server handles it, an interrupt just ends the process: no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    name = sys.argv[0].rpartition("/")[2] or "martlet"
    try:
        return carry_out(parse_flags(sys.argv[1:], name))
    except UsageError as error:
        print(error, file=sys.stderr)
        print(usage(name))
        return 0
    except (FlagError, MainError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1


def carry_out(command: Command) -> int:
    match command.action:
        case "version":
            # Test harnesses read the line of a nats-server to its end.
            ours = "" if command.name == "nats-server" else f" (martlet {MARTLET_VERSION})"
            print(f"{command.name}: v{COMPAT_VERSION}{ours}")
        case "help":
            print(usage(command.name))
        case "help_tls":
            print(tls_usage())
        case "check":
            check(command)
        case "signal":
            send_signal(command)
        case _:
            return serve(command)
    return 0


def check(command: Command) -> None:
    """`-t`: reads the file; every error and every warning is a reason to fail."""
    from config.errors import ConfigError
    from config.load import read_file
    from server.core.transform import mapping_problem

    try:
        loaded = read_file(command.config_file, judge_mapping=mapping_problem)
    except (ConfigError, OSError) as error:
        raise MainError(error_text(error)) from error
    if loaded.warnings:
        raise MainError("\n".join(str(warning) for warning in loaded.warnings))
    print(
        f"{command.name}: configuration file {command.config_file} is valid ({loaded.digest})",
        file=sys.stderr,
    )


def error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"open {error.filename}: {(error.strerror or str(error)).lower()}"
    return str(error)


def send_signal(command: Command) -> None:
    from server.ops.signals import SignalError, send

    try:
        send(command.signal, command.signal_target, command.name, COMMANDS)
    except SignalError as error:
        raise MainError(str(error)) from error


def read_options(command: Command, warn: Callable[[str], None]) -> Options:
    """File and flags; at the start and again at each reload."""
    from config.errors import ConfigError
    from config.load import load
    from server.core.transform import mapping_problem

    try:
        options, warnings = load(command.config_file, command.draft, judge_mapping=mapping_problem)
    except (ConfigError, OSError) as error:
        raise MainError(error_text(error)) from error
    for warning in warnings:
        warn(str(warning))
    return options


def warn_on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def reread_options(command: Command, logger: Logger) -> Options:
    from server.app import ReadError

    try:
        return read_options(command, logger.warn)
    except MainError as error:
        raise ReadError(str(error)) from error


def allow_descriptors() -> None:
    """Each connection is one: as many as the machine lets us have."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def hide_secrets(arguments: list[str]) -> None:
    shown = redact_arguments(arguments)
    if shown != arguments:
        from server.ops.processtitle import replace_arguments

        # A kernel that does not let us: they stay visible, and the server starts all the same.
        with suppress(OSError):
            replace_arguments(arguments, shown)


def serve(command: Command) -> int:
    # There is no log yet: the options say where it is.
    options = read_options(command, warn_on_stderr)
    hide_secrets(sys.argv[1:])
    allow_descriptors()

    import uvloop

    from server.clock import SystemClock
    from server.ops.openlog import LogOpenError, open_log

    clock = SystemClock()
    try:
        logger = open_log(options.log, clock, command.name)
    except LogOpenError as error:
        raise MainError(str(error)) from error
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(partial(log_exception, logger))
    sys.unraisablehook = partial(log_unraisable, logger)
    try:
        loop.run_until_complete(run(command, options, loop, logger))
    finally:
        loop.close()
    return 0


def log_exception(logger: Logger, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error that nobody caught costs the callback it came from, not the server."""
    import traceback

    error = context.get("exception")
    lines = traceback.format_exception(error) if isinstance(error, BaseException) else []
    logger.error(f"Internal error: {context.get('message')}\n{''.join(lines)}".rstrip())


def log_unraisable(logger: Logger, fault: sys.UnraisableHookArgs) -> None:
    """One that C code could not hand on: the log is where it is looked for, not stderr."""
    import traceback

    lines = traceback.format_exception(fault.exc_type, fault.exc_value, fault.exc_traceback)
    where = fault.err_msg or f"in {fault.object!r}"
    logger.error(f"Internal error: {where}\n{''.join(lines)}".rstrip())


async def run(
    command: Command, options: Options, loop: asyncio.AbstractEventLoop, logger: Logger
) -> None:
    from server.app import App, StartError
    from server.clock import SystemClock, SystemRandom
    from server.ops import signals

    try:
        app: App = App(
            options,
            program=command.name,
            loop=loop,
            logger=logger,
            clock=SystemClock(),
            random=SystemRandom(),
            reread=partial(reread_options, command, logger) if command.config_file else None,
        )
    except StartError as error:
        raise MainError(str(error)) from error
    signals.install(loop, app, logger)
    await app.start()
    # What the start made lives as long as the process: no collection looks at it again.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    await app.wait_ended()


if __name__ == "__main__":
    sys.exit(main())
