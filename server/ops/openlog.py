"""From the log options to a sink and its format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from server.clock import Clock
from server.ops.logging import (
    BareFormatter,
    Formatter,
    JsonFormatter,
    Level,
    Logger,
    PlainFormatter,
    Sink,
    StderrSink,
    stderr_is_terminal,
)

if TYPE_CHECKING:
    from config.options import LogOptions


class LogOpenError(Exception):
    """The log cannot be opened; the text says which and why."""


def open_log(options: LogOptions, clock: Clock, program: str) -> Logger:
    sink, formatter = open_sink(options, clock, program)
    return Logger(sink, formatter, clock, debug=options.debug, trace=options.trace)


def reopen_log(logger: Logger, options: LogOptions, clock: Clock, program: str) -> None:
    """The same logger, from now on with these options. The old sink stays if this fails."""
    sink, formatter = open_sink(options, clock, program)
    logger.replace(sink, formatter, debug=options.debug, trace=options.trace)


def open_sink(options: LogOptions, clock: Clock, program: str) -> tuple[Sink, Formatter]:
    """A file wins over a remote syslog, that over the local one, that over stderr."""
    if options.file:
        return open_file(options, clock)
    if options.remote_syslog or options.syslog:
        from server.ops.syslog import SyslogError, SyslogSink

        try:
            sink = SyslogSink(options.remote_syslog, program, os.getpid(), clock)
            return sink, BareFormatter()
        except SyslogError as error:
            raise LogOpenError(str(error)) from error
    return StderrSink(), formatter_for(options, colored=stderr_is_terminal())


def open_file(options: LogOptions, clock: Clock) -> tuple[Sink, Formatter]:
    from server.ops.logfile import FileSink

    formatter = formatter_for(options, colored=False)

    def format_line(level: Level, text: str) -> bytes:
        return formatter.format(level, text, "", clock.wall_ns())

    try:
        sink = FileSink(
            options.file,
            clock,
            format_line,
            size_limit=options.file_size_limit_bytes,
            files_max=options.file_max_count,
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise LogOpenError(f"error opening file: open {options.file}: {reason}") from error
    return sink, formatter


def formatter_for(options: LogOptions, *, colored: bool) -> Formatter:
    if options.format == "json":
        return JsonFormatter(pid=os.getpid())
    return PlainFormatter(
        pid=os.getpid(), stamped=options.logtime, utc=options.logtime_utc, colored=colored
    )
