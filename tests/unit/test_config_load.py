"""Files to Options: every option, defaults, collected errors, values that do not fit."""

from pathlib import Path

import pytest

from config.load import load, read_file
from config.options import Options
from tests.unit.config_files import options, problems, write


def same_as_default(got: Options, *but: str) -> None:
    for name in Options.__struct_fields__:
        if name not in (*but, "config_file", "config_digest"):
            assert getattr(got, name) == getattr(Options(), name), name


@pytest.mark.feature("3-024", "3-030")
@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("listen: '1.2.3.4:99'", "1.2.3.4", 99),
        ("listen: localhost:-1", "localhost", -1),
        ("listen: 99", "0.0.0.0", 99),
        ("listen: ':99'", "0.0.0.0", 99),
        ('listen: "[::1]:99"', "::1", 99),
        ("host: a, port: 5", "a", 5),
        ("net: a", "a", 4222),
        ("port: 0", "0.0.0.0", 4222),
    ],
)
def test_listen(tmp_path: Path, text: str, host: str, port: int) -> None:
    got = options(tmp_path, text)
    assert (got.host, got.port, got.http.host) == (host, port, host)


@pytest.mark.parametrize(
    "text", ["listen: a", "listen: 'a:b'", "listen: '::1:5'", "listen: x:70000", "port: -2"]
)
def test_wrong_addresses(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text).startswith("f:1:0: ")


@pytest.mark.feature("3-025")
@pytest.mark.parametrize("text", ["h:x", "h:", "::1", "h:70000", "[::1"])
def test_wrong_addresses_to_advertise(tmp_path: Path, text: str) -> None:
    said = problems(tmp_path, f"debug: true\nclient_advertise: '{text}'")
    assert said.startswith("f:2:1: "), said


def test_nothing_is_the_default(tmp_path: Path) -> None:
    same_as_default(load("", {})[0])
    same_as_default(options(tmp_path, "# nothing"))


@pytest.mark.feature("3-025", "3-026", "3-027", "3-028", "3-029")
def test_server_and_log(tmp_path: Path) -> None:
    got = options(
        tmp_path,
        """
        server_name: n1, client_advertise: 'h:1', server_tags: [a, ' B c', A]
        server_metadata { k: v }
        DEBUG: true, trace_verbose: true, trace_headers: yes, logtime: off, logtime_utc: on
        logfile: /x, log_size_limit: 10k, logfile_max_num: 3, syslog: true
        remote_syslog: 'udp://h:514', pidfile: /p, ports_file_dir: /d, max_traced_msg_len: 9
        log_format: json
        """,
    )
    assert (got.server_name, got.client_advertise) == ("n1", "h:1")
    assert got.server_tags == ("a", "b c")
    assert got.server_metadata == {"k": "v"}
    log = got.log
    assert (log.debug, log.trace, log.trace_verbose, log.trace_headers) == (True,) * 4
    assert (log.logtime, log.logtime_utc, log.syslog) == (False, True, True)
    assert (log.file, log.file_size_limit_bytes, log.file_max_count) == ("/x", 10_000, 3)
    assert (log.remote_syslog, log.max_traced_message_bytes) == ("udp://h:514", 9)
    assert log.format == "json"
    assert (got.pid_file, got.ports_file_dir) == ("/p", "/d")


@pytest.mark.feature("3-030")
def test_monitoring(tmp_path: Path) -> None:
    http = options(tmp_path, "host: h\nmonitor_port: 8222\nhttp_base_path: a/b/").http
    assert (http.host, http.port, http.base_path) == ("h", 8222, "/a/b")
    assert options(tmp_path, "http: 'x:1'").http.host == "x"
    assert "can't specify both" in problems(tmp_path, "http: 1, https: 2")


@pytest.mark.feature("3-031", "3-032", "3-033", "3-034", "3-035", "3-043", "3-046")
def test_connections_and_operation(tmp_path: Path) -> None:
    got = options(
        tmp_path,
        """
        max_control_line: 1kb, max_payload: 2MB, max_pending: 3mb, max_conn: 0, max_subs: -1
        max_sub_tokens: 7, ping_interval: '1m30s', ping_max: 4, write_deadline: 250ms
        write_timeout: retry, max_closed_clients: 5, no_fast_producer_stall: true
        lame_duck_duration: 40s, lame_duck_grace_period: 1s, no_header_support: true
        connect_error_reports: 1, reconnect_error_reports: 2, no_sublist_cache: true
        feature_flags { x: true }
        """,
    )
    assert got.max_control_line_bytes == 1024
    assert got.max_payload_bytes == 2 * 1024**2
    assert got.max_pending_bytes == 3 * 1024**2
    assert (got.max_connections, got.max_subscriptions, got.max_subject_tokens) == (0, 0, 7)
    assert (got.ping_interval_ns, got.max_pings_out) == (90 * 10**9, 4)
    assert (got.write_deadline_ns, got.write_timeout) == (250 * 10**6, "retry")
    assert (got.max_closed_clients, got.no_fast_producer_stall) == (5, True)
    assert got.lame_duck_duration_ns == 40 * 10**9
    assert got.lame_duck_grace_period_ns == 10**9
    assert (got.connect_error_reports, got.reconnect_error_reports) == (1, 2)
    assert (got.no_header_support, got.disable_sublist_cache) == (True, True)
    assert got.feature_flags == {"x": True}


@pytest.mark.parametrize(
    "text",
    [
        "max_payload: 3gb",
        "max_payload: -1",
        "max_sub_tokens: 256",
        "max_sub_tokens: 0",
        "write_timeout: never",
        "lame_duck_duration: 29s",
        "lame_duck_duration: 60",
        "lame_duck_grace_period: '-1s'",
        "ping_interval: 3x",
        "server_name: 'a b'",
        "server_tags: [1]",
        "server_metadata: { a: 1 }",
        "feature_flags: { a: x }",
        "debug: 1",
        "host: 1",
        "log_format: xml",
        "server_tags: 2006-01-02T15:04:05Z",
    ],
)
@pytest.mark.feature("3-022")
def test_wrong_values_name_their_place_and_what_was_expected(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, "\n " + text).startswith("f:2:")


@pytest.mark.feature("3-031", "3-035")
def test_options_that_do_not_fit_together(tmp_path: Path) -> None:
    text = problems(
        tmp_path,
        "max_payload: 2mb, max_pending: 1mb\nlame_duck_duration: 30s\nlame_duck_grace_period: 30s",
    )
    assert "max_payload (2097152) cannot be higher than max_pending (1048576)" in text
    assert "lame duck grace period (30s) should be strictly lower than lame duck" in text


@pytest.mark.feature("2-020")
def test_reading_a_file_does_not_judge_how_options_fit_together(tmp_path: Path) -> None:
    assert read_file(write(tmp_path, "http: 1, https: 2\nno_auth_user: x"), {}).digest


@pytest.mark.feature("3-013", "2-021")
def test_bare_seconds_warn(tmp_path: Path) -> None:
    path = write(tmp_path, "ping_interval: 20\nwrite_deadline: 3")
    got, warnings = load(path, {}, {})
    assert (got.ping_interval_ns, got.write_deadline_ns) == (20 * 10**9, 3 * 10**9)
    assert str(warnings[0]) == (
        f'{path}:1:0: invalid use of field "ping_interval": '
        "ping_interval should be converted to a duration"
    )
    assert len(warnings) == 2


@pytest.mark.feature("3-021")
def test_an_empty_file_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "\n# only a comment\n")
    assert [str(text) for text in read_file(path, {}).warnings] == [
        f"{path}: config has no values or is empty"
    ]


@pytest.mark.feature("3-019", "3-022")
def test_all_problems_at_once(tmp_path: Path) -> None:
    text = problems(
        tmp_path,
        "bogus: 1\nport: x\nauthorization { usr: a }\njetstream { stor: 1 }\nV: 1\nhost: $V",
    )
    assert text.splitlines() == [
        'f:1:0: unknown field "bogus"',
        'f:2:1: expected an integer from -1 to 65535 for "port", got a text "x"',
        'f:3:17: unknown field "usr"',
        'f:4:13: unknown field "stor"',
        'f:6:1: expected a text for "host", got an integer 1 (put the value in quotes)',
    ]


@pytest.mark.feature("3-012")
def test_a_password_that_is_a_number_gets_a_hint_and_is_not_shown(tmp_path: Path) -> None:
    text = problems(tmp_path, "authorization { user: a, password: 8675309 }")
    assert text == (
        'f:1:25: expected a text for "password", got an integer (put the value in quotes)'
    )


@pytest.mark.feature("3-018")
def test_includes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, "port: 5\ninclude 'more.conf'", "sub/a.conf")
    write(tmp_path, "server_name: x", "sub/more.conf")
    write(tmp_path, "user: u\npassword: p", "sub/auth.conf")
    got = options(tmp_path, "include sub/a.conf\nauthorization { include 'sub/auth.conf' }")
    assert (got.port, got.server_name, got.auth.user) == (5, "x", "u")
    assert "cannot include 'nope'" in problems(tmp_path, "include nope")
    path = write(tmp_path, "a: $X", "sub/own.conf")
    text = problems(tmp_path, "X: 1\ninclude sub/own.conf")
    assert text.startswith(path)
    assert "can not be found" in text


def test_includes_that_never_end(tmp_path: Path) -> None:
    assert "nested too deep" in problems(tmp_path, "include f.conf")


@pytest.mark.feature("2-014")
def test_flags_win(tmp_path: Path) -> None:
    got = options(tmp_path, "port: 1\ndebug: true", port=2, log__debug=False)
    assert (got.port, got.log.debug) == (2, False)


@pytest.mark.feature("3-047")
def test_jetstream(tmp_path: Path) -> None:
    for word in ("true", "enabled", "{}"):
        assert options(tmp_path, f"jetstream: {word}").jetstream.enabled
    for word in ("false", "disabled", "{ enabled: false }"):
        assert not options(tmp_path, f"jetstream: {word}").jetstream.enabled
    got = options(
        tmp_path,
        """
        jetstream {
          store_dir: /d, max_mem: 1gb, max_file: "2T", domain: d, sync_interval: 5s
          limits { duplicate_window: '1m', batch { max_msgs: 3 } }, key: secret, cipher: aes
        }
        default_js_domain { A: b }
        """,
    ).jetstream
    assert (got.store_dir, got.domain, got.cipher) == ("/d", "d", "aes")
    assert (got.max_memory_bytes, got.max_store_bytes) == (2**30, 2 * 2**40)
    assert (got.sync_always, got.sync_interval_ns) == (False, 5 * 10**9)
    assert (got.max_duplicate_window_ns, got.max_batch_messages) == (60 * 10**9, 3)
    assert got.encryption_key == "secret"
    assert "secret" not in repr(got)
    assert got.default_domains == {"A": "b"}
    assert options(tmp_path, "store_dir: /e").jetstream.store_dir == "/e"
    assert "Duplicate 'store_dir'" in problems(tmp_path, "store_dir: a\njetstream {store_dir: b}")
    assert "jetstream" in problems(tmp_path, "jetstream: maybe")


@pytest.mark.parametrize(
    "text",
    [
        "cluster { name: a }",
        "gateway { name: a }",
        "leafnodes { port: 1 }",
        "leaf { remotes: [ { url: 'x' } ] }",
        "websocket { port: 1, no_tls: true }",
        "mqtt { port: 1 }",
        "operator: x",
        "resolver: MEMORY",
        "resolver_preload { A: b }",
        "trusted_keys: [ a ]",
        "default_sentinel: x",
        "ocsp: true",
        "ocsp_cache: true",
        "proxies { trusted: [ { key: a } ] }",
        "prof_port: 1",
        "authorization { auth_callout { issuer: x } }",
        "authorization { users: [ { user: a, proxy_required: true } ] }",
        "accounts { A { exports: [ { stream: a } ] } }",
        "accounts { A { imports: [ { stream: { account: B, subject: a } } ] } }",
        "jetstream { tpm { pcr: 1 } }",
    ],
)
def test_parts_that_do_not_exist_yet_are_refused_by_name(tmp_path: Path, text: str) -> None:
    assert " is not supported yet" in problems(tmp_path, text)


@pytest.mark.feature("3-019")
def test_unknown_keys_inside_parts_that_do_not_exist_yet(tmp_path: Path) -> None:
    assert problems(tmp_path, "leaf { remotes: [ { ulr: x } ] }") == 'f:1:20: unknown field "ulr"'


def test_parts_switched_off_are_accepted(tmp_path: Path) -> None:
    text = "ocsp: false, cluster {}, accounts { A { exports: [] } }"
    assert options(tmp_path, text)
