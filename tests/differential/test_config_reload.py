"""The same change of the same file: what the genuine server logs at SIGHUP, and what diff says."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from config.load import load
from config.reload import ReloadError, diff
from tests.e2e.server import die_with_parent

GENUINE = Path(sys.executable).parent / "nats-server"
TEXT = re.compile(r"\] (?:[\d/]+ [\d:.]+ )?\[(INF|ERR)\] (.*)")
# The reference says these at each reload, changed or not.
ALWAYS = {"Reloaded: accounts", "Reloaded: authorization users"}
USERS = "authorization { users: [ {user: a, password: b} ] }"
JETSTREAM = "jetstream { store_dir: js, max_mem: 1M, max_file: 1M }"
PAIRS = [
    ("", "debug: true"),
    ("trace: true", "trace: false"),
    ("", "trace_verbose: true"),
    ("", "trace_headers: true"),
    ("", "logtime: false"),
    ("", "logtime_utc: true"),
    ("", "max_payload: 1024"),
    ("", "max_control_line: 512"),
    ("", "max_connections: 10"),
    ("", "ping_interval: '90s'"),
    ("", "ping_max: 3"),
    ("", "write_deadline: '250ms'"),
    ("", "client_advertise: 'h:1'"),
    ("", "server_tags: [a]"),
    ("", "server_metadata { a: b }"),
    ("", "max_traced_msg_len: 5"),
    ("", "connect_error_reports: 5"),
    ("", "reconnect_error_reports: 5"),
    ("", "no_fast_producer_stall: true"),
    ("", "authorization { timeout: 1.5 }"),
    ("", "authorization { timeout: 3 }"),
    ("authorization {user: a, password: b}", "authorization {user: c, password: d}"),
    ("authorization {token: a}", "authorization {token: b}"),
    ("", "debug: true\nmax_payload: 5\nping_max: 1"),
    ("", "server_name: other"),
    ("", "host: localhost"),
    ("", "max_subs: 5"),
    ("", "max_pending: 2mb"),
    ("", "max_sub_tokens: 5"),
    ("", "max_closed_clients: 5"),
    ("", "lame_duck_duration: '30s'"),
    ("", "lame_duck_grace_period: '3s'"),
    ("", "http_port: -1"),
    ("", "http_base_path: /x"),
    ("", "no_header_support: true"),
    ("", "disable_sublist_cache: true"),
    ("", "allow_non_tls: true"),
    ("", "log_size_limit: 5kb"),
    ("", "log_max_num: 5"),
    ("", "write_timeout: retry"),
    ("", "feature_flags { a: true }"),
    ("", "debug: true\nmax_subs: 7"),
    (USERS + "\nno_auth_user: a", USERS),
    ("", USERS + "\nno_auth_user: a"),
    ("", "accounts { A {} }\nsystem_account: A"),
    ("", JETSTREAM),
    (JETSTREAM, ""),
    (JETSTREAM, "jetstream: false"),
]
COMMON = "server_name: n\nhost: 127.0.0.1\nport: -1\n"


def told_by_genuine(path: Path, new: str) -> list[str]:
    """Lines about the reload, up to the one that ends it."""
    process = subprocess.Popen(
        [GENUINE, "-c", path.name],
        cwd=path.parent,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    assert process.stderr is not None
    try:
        lines = read_until(process.stderr.fileno(), "Server is ready")
        path.write_text(new)
        process.send_signal(signal.SIGHUP)
        lines = read_until(process.stderr.fileno(), "eload(ed)? server configuration")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    found = [match.group(2) for line in lines if (match := TEXT.search(line))]
    return [line for line in found if "eload" in line or "not supported" in line]


def read_until(descriptor: int, wanted: str, timeout_s: float = 60) -> list[str]:
    deadline = time.monotonic() + timeout_s
    text = ""
    readable = select.poll()
    readable.register(descriptor, select.POLLIN)
    while not re.search(wanted + r".*\n", text):
        ready = readable.poll(max(deadline - time.monotonic(), 0) * 1000)
        chunk = os.read(descriptor, 65536) if ready else b""
        assert chunk, f"no {wanted!r} in {text!r}"
        text += chunk.decode()
    return text.splitlines()


@pytest.mark.peer
@pytest.mark.feature("2-041", "3-088")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_reload(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "f.conf"
    path.write_text(COMMON + old)
    before = load(str(path), {}, {})[0]
    genuine = told_by_genuine(path, COMMON + new)
    after = load(str(path), {}, {})[0]
    try:
        ours = {change.log for change in diff(before, after)}
    except ReloadError as error:
        expected = f"Failed to reload server configuration: {error}"
        assert [line for line in genuine if "Failed" in line] == [expected]
    else:
        assert not [line for line in genuine if "Failed" in line]
        theirs = {line for line in genuine if line.startswith(("Reload: ", "Reloaded: "))}
        assert theirs - ALWAYS == ours - ALWAYS
