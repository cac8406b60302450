"""The server log: one line per event, in the reference's format or as JSON.

A `Logger` decides whether a line is wanted and how it looks, a sink where it goes. Lines of the
data path arrive through `Logger` too (protocol traces), so nothing here formats a line that its
level would drop. Contract: no method raises because a line could not be written; such a line goes
to stderr instead.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from enum import Enum
from time import gmtime, localtime, strftime
from typing import NoReturn, Protocol

from server.clock import Clock

LIMITED_TEXTS_MAX = 1024
"""How many texts the rate limit remembers; beyond, it forgets the expired ones first."""
LIMITED_INTERVAL_NS = 1_000_000_000


class Level(Enum):
    """Label, colour on a terminal, name in JSON, syslog severity."""

    INFO = ("INF", "32", "info", 5)
    DEBUG = ("DBG", "36", "debug", 7)
    WARN = ("WRN", "0;93", "warn", 4)
    ERROR = ("ERR", "31", "error", 3)
    FATAL = ("FTL", "31", "fatal", 2)
    TRACE = ("TRC", "33", "trace", 5)

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def severity(self) -> int:
        return self.value[3]


class Sink(Protocol):
    """Where lines go."""

    def write(self, level: Level, line: bytes) -> None: ...

    def close(self) -> None: ...


class Formatter(Protocol):
    """How a line looks; with its newline."""

    def format(self, level: Level, text: str, conn: str, wall_ns: int) -> bytes: ...


class Stamps:
    """`2006/01/02 15:04:05.000000`; the part down to the second is kept while it holds."""

    def __init__(self, utc: bool) -> None:
        self._broken_down = gmtime if utc else localtime
        self._second = -1
        self._text = ""

    def of(self, wall_ns: int) -> str:
        second, rest_ns = divmod(wall_ns, 1_000_000_000)
        if second != self._second:
            self._second = second
            self._text = strftime("%Y/%m/%d %H:%M:%S", self._broken_down(second))
        return f"{self._text}.{rest_ns // 1000:06d}"


class PlainFormatter:
    """`[pid] 2006/01/02 15:04:05.000000 [INF] text`, as log parsers know it."""

    def __init__(self, *, pid: int, stamped: bool, utc: bool, colored: bool) -> None:
        self._prefix = f"[{pid}] "
        self._stamps = Stamps(utc) if stamped else None
        self._labels = {
            level: f"[\x1b[{level.value[1]}m{level.label}\x1b[0m]"
            if colored
            else f"[{level.label}]"
            for level in Level
        }

    def format(self, level: Level, text: str, conn: str, wall_ns: int) -> bytes:
        stamp = f"{self._stamps.of(wall_ns)} " if self._stamps else ""
        where = f"{conn} - " if conn else ""
        line = f"{self._prefix}{stamp}{self._labels[level]} {where}{text}\n"
        return line.encode(errors="backslashreplace")


class JsonFormatter:
    """One JSON object per line: time (RFC 3339, UTC), level, pid, msg, and conn if there is one."""

    def __init__(self, *, pid: int) -> None:
        self._pid = pid
        self._stamps = Stamps(utc=True)

    def format(self, level: Level, text: str, conn: str, wall_ns: int) -> bytes:
        stamp = self._stamps.of(wall_ns).replace("/", "-").replace(" ", "T") + "Z"
        fields = {"time": stamp, "level": level.value[2], "pid": self._pid, "msg": text}
        if conn:
            fields["conn"] = conn
        return json.dumps(fields).encode() + b"\n"


class BareFormatter:
    """The text alone: a syslog daemon adds the rest."""

    def format(self, level: Level, text: str, conn: str, wall_ns: int) -> bytes:
        return (f"{conn} - {text}" if conn else text).encode(errors="backslashreplace")


class StderrSink:
    """Standard error, unbuffered."""

    def write(self, level: Level, line: bytes) -> None:
        write_to_stderr(line)

    def close(self) -> None:
        pass


def write_to_stderr(line: bytes) -> None:
    try:
        os.write(2, line)
    except OSError:
        # A closed stderr leaves nowhere to say so; serving goes on, as the reference does.
        return


def stderr_is_terminal() -> bool:
    try:
        return stat.S_ISCHR(os.fstat(2).st_mode)
    except OSError:
        return False


class Logger:
    """The one log of a server. `conn` is the connection's prefix (`ip:port - cid:N`)."""

    def __init__(
        self, sink: Sink, formatter: Formatter, clock: Clock, *, debug: bool, trace: bool
    ) -> None:
        self.debug_on = debug
        self.trace_on = trace
        self._sink = sink
        self._formatter = formatter
        self._clock = clock
        self._limited: dict[str, int] = {}

    def replace(self, sink: Sink, formatter: Formatter, *, debug: bool, trace: bool) -> None:
        """Goes on with another sink; every holder of this logger follows."""
        self._sink.close()
        self._sink = sink
        self._formatter = formatter
        self.debug_on = debug
        self.trace_on = trace

    def close(self) -> None:
        self._sink.close()

    def write(self, level: Level, text: str, conn: str = "") -> None:
        self._sink.write(level, self._formatter.format(level, text, conn, self._clock.wall_ns()))

    def notice(self, text: str, conn: str = "") -> None:
        self.write(Level.INFO, text, conn)

    def warn(self, text: str, conn: str = "") -> None:
        self.write(Level.WARN, text, conn)

    def error(self, text: str, conn: str = "") -> None:
        self.write(Level.ERROR, text, conn)

    def debug(self, text: str, conn: str = "") -> None:
        if self.debug_on:
            self.write(Level.DEBUG, text, conn)

    def trace(self, text: str, conn: str = "") -> None:
        if self.trace_on:
            self.write(Level.TRACE, text, conn)

    def fatal(self, text: str) -> NoReturn:
        """Logs and ends the process with status 1."""
        self.write(Level.FATAL, text)
        sys.exit(1)

    def limited(self, level: Level, text: str, conn: str = "") -> None:
        """Like `write`, but one text (whatever its connection) is written once a second."""
        now = self._clock.monotonic_ns()
        last = self._limited.get(text)
        if last is not None and now - last < LIMITED_INTERVAL_NS:
            return
        if len(self._limited) >= LIMITED_TEXTS_MAX:
            self._forget_expired(now)
        self._limited[text] = now
        self.write(level, text, conn)

    def _forget_expired(self, now: int) -> None:
        fresh = {t: at for t, at in self._limited.items() if now - at < LIMITED_INTERVAL_NS}
        # A storm of different texts must not grow this without end: then all are forgotten.
        self._limited = fresh if len(fresh) < LIMITED_TEXTS_MAX else {}
