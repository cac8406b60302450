"""The log's lines, its rate limit, the file with rotation, syslog."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from config.options import LogOptions
from server.ops import logging, syslog
from server.ops.logging import Level, Logger, PlainFormatter
from server.ops.openlog import LogOpenError, open_log
from server.ops.openlog import reopen_log as reopen
from tests.e2e.server import wait_for

SECOND_NS = 1_000_000_000
# 2026-01-02 03:04:05.000678 UTC
WALL_NS = 1_767_323_045_000_678_999


class FakeClock:
    def __init__(self) -> None:
        self.now_ns = 5 * SECOND_NS
        self.at_ns = WALL_NS

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.at_ns


class ListSink:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, level: Level, line: bytes) -> None:
        self.lines.append(line.decode())

    def close(self) -> None:
        pass


def plain(*, utc: bool = True, stamped: bool = True, colored: bool = False) -> PlainFormatter:
    return PlainFormatter(pid=42, stamped=stamped, utc=utc, colored=colored)


def logger_on(sink: ListSink, clock: FakeClock, *, debug: bool = True) -> Logger:
    return Logger(sink, plain(), clock, debug=debug, trace=False)


@pytest.mark.feature("2-034")
def test_a_line_has_pid_stamp_with_microseconds_label_and_text() -> None:
    line = plain().format(Level.INFO, "Server is ready", "", WALL_NS)
    assert line == b"[42] 2026/01/02 03:04:05.000678 [INF] Server is ready\n"


@pytest.mark.feature("2-034")
def test_the_stamp_is_local_time_unless_told_otherwise() -> None:
    local = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(WALL_NS // SECOND_NS))
    line = plain(utc=False).format(Level.INFO, "x", "", WALL_NS)
    assert line == f"[42] {local}.000678 [INF] x\n".encode()


@pytest.mark.feature("2-034")
def test_without_logtime_the_pid_stays() -> None:
    assert plain(stamped=False).format(Level.DEBUG, "x", "", 0) == b"[42] [DBG] x\n"


@pytest.mark.feature("2-035")
@pytest.mark.parametrize(
    ("level", "label", "color"),
    [
        (Level.INFO, "INF", "32"),
        (Level.DEBUG, "DBG", "36"),
        (Level.WARN, "WRN", "0;93"),
        (Level.ERROR, "ERR", "31"),
        (Level.FATAL, "FTL", "31"),
        (Level.TRACE, "TRC", "33"),
    ],
)
def test_labels_and_their_colours(level: Level, label: str, color: str) -> None:
    assert f"[{label}] x" in plain().format(level, "x", "", 0).decode()
    assert (
        f"[\x1b[{color}m{label}\x1b[0m] x" in plain(colored=True).format(level, "x", "", 0).decode()
    )


@pytest.mark.feature("2-043")
def test_the_connection_stands_before_the_text() -> None:
    line = plain(stamped=False).format(Level.ERROR, "Bad", '1.2.3.4:5 - cid:7 - "v1:go"', 0)
    assert line == b'[42] [ERR] 1.2.3.4:5 - cid:7 - "v1:go" - Bad\n'


def test_json_lines_carry_the_same_facts() -> None:
    line = logging.JsonFormatter(pid=42).format(Level.WARN, 'a "b"\n', "1.2.3.4:5 - cid:7", WALL_NS)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "time": "2026-01-02T03:04:05.000678Z",
        "level": "warn",
        "pid": 42,
        "msg": 'a "b"\n',
        "conn": "1.2.3.4:5 - cid:7",
    }


def test_levels_that_are_off_write_nothing() -> None:
    sink, clock = ListSink(), FakeClock()
    logger = logger_on(sink, clock, debug=False)
    logger.debug("d")
    logger.trace("t")
    assert sink.lines == []
    logger.debug_on = logger.trace_on = True
    logger.debug("d")
    logger.trace("t")
    assert len(sink.lines) == 2


@pytest.mark.feature("2-035")
def test_fatal_ends_the_process_with_one() -> None:
    sink = ListSink()
    with pytest.raises(SystemExit) as ended:
        logger_on(sink, FakeClock()).fatal("no")
    assert ended.value.code == 1
    assert sink.lines[0].endswith("[FTL] no\n")


@pytest.mark.feature("2-047")
def test_the_same_text_is_written_once_a_second_whoever_says_it() -> None:
    sink, clock = ListSink(), FakeClock()
    logger = logger_on(sink, clock)
    for conn in ("a", "b", "c"):
        logger.limited(Level.ERROR, "same", conn)
    logger.limited(Level.ERROR, "other", "a")
    assert len(sink.lines) == 2
    clock.now_ns += SECOND_NS
    logger.limited(Level.ERROR, "same", "d")
    assert sink.lines[-1].endswith("d - same\n")


def test_the_rate_limit_remembers_a_bounded_number_of_texts() -> None:
    sink, clock = ListSink(), FakeClock()
    logger = logger_on(sink, clock)
    for number in range(3 * logging.LIMITED_TEXTS_MAX):
        logger.limited(Level.WARN, f"text {number}")
    assert len(sink.lines) == 3 * logging.LIMITED_TEXTS_MAX
    assert len(logger._limited) <= logging.LIMITED_TEXTS_MAX


@pytest.mark.feature("2-048")
def test_a_log_file_is_appended_to_and_private(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("before\n")
    path.unlink()
    for text in ("one", "two"):
        logger = open_log(LogOptions(file=str(path)), FakeClock(), "martlet")
        logger.notice(text)
        logger.close()
    assert path.stat().st_mode & 0o777 == 0o640
    assert re.fullmatch(
        r"\[\d+\] \S+ \S+ \[INF\] one\n\[\d+\] \S+ \S+ \[INF\] two\n", path.read_text()
    )


def test_a_log_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    wanted = tmp_path / "missing" / "server.log"
    with pytest.raises(LogOpenError, match=f"open {wanted}: no such file or directory"):
        open_log(LogOptions(file=str(wanted)), FakeClock(), "martlet")


@pytest.mark.feature("2-049")
def test_a_log_file_is_rotated_at_its_size_and_old_ones_are_purged(tmp_path: Path) -> None:
    path, clock = tmp_path / "server.log", FakeClock()
    options = LogOptions(file=str(path), file_size_limit_bytes=200, file_max_count=3)
    logger = open_log(options, clock, "martlet")
    (tmp_path / "server.log.bak").write_text("not ours")
    for number in range(40):
        clock.at_ns += 1
        logger.notice(f"line {number} {'x' * 30}")
    logger.close()
    rotated = sorted(entry.name for entry in tmp_path.iterdir() if entry.name != "server.log.bak")
    assert rotated[0] == "server.log"
    assert len(rotated) == 3
    for name in rotated[1:]:
        assert re.fullmatch(r"server\.log\.\d{4}(\.\d\d){5}\.\d{9}", name)
    assert "Rotated log, backup saved as" in path.read_text()
    assert (tmp_path / "server.log.bak").exists()
    assert path.stat().st_size <= 400


@pytest.mark.feature("2-048")
def test_a_reopened_log_goes_on_in_a_new_file(tmp_path: Path) -> None:
    path, clock = tmp_path / "server.log", FakeClock()
    options = LogOptions(file=str(path))
    logger = open_log(options, clock, "martlet")
    logger.notice("old")
    path.rename(tmp_path / "moved.log")
    reopen(logger, options, clock, "martlet")
    logger.notice("new")
    logger.close()
    assert path.read_text().endswith("new\n")
    assert (tmp_path / "moved.log").read_text().endswith("old\n")


@pytest.mark.feature("2-050")
def test_a_remote_syslog_gets_datagrams() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("127.0.0.1", 0))
        daemon.settimeout(5)
        url = f"udp://127.0.0.1:{daemon.getsockname()[1]}"
        logger = open_log(LogOptions(remote_syslog=url), FakeClock(), "martlet")
        logger.error("Bad", "1.2.3.4:5 - cid:7")
        packet = daemon.recv(1000).decode()
        logger.close()
    # Facility daemon (3), severity error (3).
    assert packet.startswith("<27>")
    assert re.search(r" martlet\[\d+\]: 1\.2\.3\.4:5 - cid:7 - Bad$", packet)


@pytest.mark.feature("2-050")
def test_a_syslog_can_be_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(path))
        daemon.settimeout(5)
        logger = open_log(LogOptions(remote_syslog=f"unix://{path}"), FakeClock(), "martlet")
        logger.notice("hello")
        assert daemon.recv(1000).decode().endswith("hello")
        logger.close()


@pytest.mark.feature("2-050")
def test_nobody_waits_for_a_syslog_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bytes] = []
    monkeypatch.setattr(syslog, "write_to_stderr", shown.append)
    clock, may_dial, dial = FakeClock(), threading.Event(), syslog.dial
    attempts: list[str] = []

    def dial_when_allowed(url: str) -> socket.socket:
        attempts.append(url)
        assert may_dial.wait(60)
        return dial(url)

    with socket.create_server(("127.0.0.1", 0)) as daemon:
        url = f"tcp://127.0.0.1:{daemon.getsockname()[1]}"
        logger = open_log(LogOptions(remote_syslog=url), clock, "martlet")
        monkeypatch.setattr(syslog, "dial", dial_when_allowed)
        peer, _ = daemon.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

        def is_shown(text: str) -> bool:
            shown.clear()
            logger.notice(text)
            return bool(shown)

        wait_for(lambda: is_shown("lost"), "a line on stderr")
        clock.now_ns += 3600 * SECOND_NS
        assert all(is_shown("meanwhile") for _ in range(3))
        assert len(attempts) == 1
        may_dial.set()
        peer, _ = daemon.accept()
        with peer, peer.makefile("rb") as lines:
            wait_for(lambda: not is_shown("again"), "the new connection")
            assert lines.readline().endswith(b"again\n")
        logger.close()


@pytest.mark.feature("2-050")
def test_a_syslog_that_reads_nothing_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bytes] = []
    monkeypatch.setattr(syslog, "write_to_stderr", shown.append)
    monkeypatch.setattr(syslog, "CONNECT_TIMEOUT_S", 3600)
    with socket.create_server(("127.0.0.1", 0)) as daemon:
        url = f"tcp://127.0.0.1:{daemon.getsockname()[1]}"
        logger = open_log(LogOptions(remote_syslog=url), FakeClock(), "martlet")
        peer, _ = daemon.accept()
        written = 0
        while not shown:
            logger.notice(f"{written:>50000}")
            written += 1

        def is_taken() -> bool:
            shown.clear()
            logger.notice("last")
            return not shown

        with peer, peer.makefile("rb") as lines:
            read = [lines.readline() for _ in range(written - 2)]
            wait_for(is_taken, "room for another line")
            while not (line := lines.readline()).endswith(b" last\n"):
                read.append(line)
        # One was taken in two parts, the one that was shown is not among them.
        assert len(read) == written - 1
        assert all(len(line) > 50000 for line in read)
        logger.close()


@pytest.mark.feature("2-050")
def test_a_log_file_wins_over_syslog(tmp_path: Path) -> None:
    options = LogOptions(file=str(tmp_path / "x.log"), remote_syslog="nonsense://")
    logger = open_log(options, FakeClock(), "martlet")
    logger.notice("here")
    logger.close()
    assert (tmp_path / "x.log").read_text().endswith("here\n")


def test_a_syslog_url_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(LogOpenError, match="invalid network type"):
        open_log(LogOptions(remote_syslog="http://x:1"), FakeClock(), "martlet")
