"""The command line."""

import pytest

from config.flags import (
    COMMANDS,
    Command,
    FlagError,
    UsageError,
    parse_flags,
    redact_arguments,
    usage,
)
from config.load import build
from config.options import CertificatePair, Options, TlsOptions


def parse(line: str) -> Command:
    return parse_flags(line.split())


def options(line: str) -> Options:
    return build(parse(line).draft)


@pytest.mark.feature("2-001")
@pytest.mark.parametrize("dash", ["-", "--"])
def test_address_port_name(dash: str) -> None:
    for names in ("a p n", "addr port name", "net port server_name"):
        host, port, name = (dash + word for word in names.split())
        got = options(f"{host} h {port}=-1 {name} x")
        assert (got.host, got.port, got.server_name) == ("h", -1, "x")


@pytest.mark.feature("2-002")
def test_files_and_words() -> None:
    assert parse("-c f").config_file == parse("--config=f").config_file == "f"
    assert parse("-t -c f").action == "check"
    got = options("-P p --ports_file_dir d")
    assert (got.pid_file, got.ports_file_dir) == ("p", "d")
    for flag, action in (("-v", "version"), ("--version", "version"), ("-h", "help")):
        assert parse(flag).action == action
    assert parse("--help_tls").action == "help_tls"
    assert parse("-h -v").action == "version"


@pytest.mark.feature("2-003", "2-004")
def test_monitoring_and_advertise() -> None:
    assert options("-m -1").http.port == options("--http_port -1").http.port == -1
    assert options("-ms 5").http.tls_port == options("--https_port=5").http.tls_port == 5
    assert options("--client_advertise h:1").client_advertise == "h:1"


@pytest.mark.feature("2-005", "2-006", "2-007")
def test_log() -> None:
    log = options("-l f -T=false --logtime_utc --log_size_limit 9 --max_traced_msg_len 7").log
    assert (log.file, log.logtime, log.logtime_utc) == ("f", False, True)
    assert (log.file_size_limit_bytes, log.max_traced_message_bytes) == (9, 7)
    expected = {"D": "d", "debug": "d", "V": "t", "VV": "tv", "DV": "dt", "DVV": "dtv"}
    for flag, letters in expected.items():
        log = options("-" + flag).log
        assert (log.debug, log.trace, log.trace_verbose) == tuple(c in letters for c in "dtv"), flag
    log = options("-s -r udp://h:1 --log_format json").log
    assert (log.syslog, log.remote_syslog, log.format) == (True, "udp://h:1", "json")
    assert options("").log.logtime


@pytest.mark.feature("2-008", "2-009")
def test_streams_and_authorization() -> None:
    got = options("-js -sd d --user u --pass p --auth t")
    assert (got.jetstream.enabled, got.jetstream.store_dir) == (True, "d")
    assert (got.auth.user, got.auth.password, got.auth.token) == ("u", "p", "t")
    assert "'p'" not in repr(parse("--pass p --auth t").draft)
    assert options("-js=false").jetstream.enabled is False


@pytest.mark.feature("2-010")
def test_tls() -> None:
    got = options("--tlsverify --tlscert c --tlskey k --tlscacert a").tls
    assert got == TlsOptions(certificates=(CertificatePair("c", "k"),), ca_file="a", verify=True)
    assert parse("--tls=false --tlscert c").draft["tls"] is None
    with pytest.raises(FlagError, match="TLS Server certificate must be present and valid"):
        parse("--tls")
    with pytest.raises(FlagError, match="TLS Server private key must be present and valid"):
        parse("--tls --tlscert c")


@pytest.mark.feature("2-013")
def test_clusters_are_not_supported_yet() -> None:
    with pytest.raises(FlagError, match=r"^solicited routes require cluster capabilities, e"):
        parse("--routes nats://h:1")
    for line in ("--cluster nats://h:1", "--cluster_name x", "--profile 1", "--no_advertise"):
        with pytest.raises(FlagError, match="is not supported yet"):
            parse(line)
    assert parse_flags(["--cluster", ""]).action == "serve"


@pytest.mark.feature("2-012")
def test_signals() -> None:
    got = parse("--signal ldm=12")
    assert (got.action, got.signal, got.signal_target) == ("signal", "ldm", "12")
    assert parse("-sl reload").signal_target == ""
    with pytest.raises(FlagError, match=r"^invalid signal parameters: \[b c\]$"):
        parse("--signal ldm=a=b=c")


@pytest.mark.feature("2-015")
def test_words() -> None:
    assert parse("version").action == parse("VERSION").action == "version"
    assert parse("-p 1 help").action == "help"
    for line in ("serve", "-p 1 -- -p"):
        with pytest.raises(FlagError, match=r"^unrecognized command: "):
            parse(line)


@pytest.mark.feature("2-017")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("-q", "flag provided but not defined: -q"),
        ("--q=1", "flag provided but not defined: -q"),
        ("-p", "flag needs an argument: -p"),
        ("-p x", 'invalid value "x" for flag -p: parse error'),
        ("-p 1k", 'invalid value "1k" for flag -p: parse error'),
        ("-p 99999999999999999999", "value out of range"),
        ("-D=x", 'invalid boolean value "x" for -D: parse error'),
        ("---x", "bad flag syntax: ---x"),
        ("--=x", "bad flag syntax: --=x"),
    ],
)
def test_wrong_flags(line: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert text in str(caught.value)


@pytest.mark.feature("2-019")
def test_a_check_needs_a_file() -> None:
    with pytest.raises(FlagError) as caught:
        parse("-t")
    assert str(caught.value) == (
        "must specify [-c, --config] option to check configuration file syntax"
    )


@pytest.mark.feature("2-017")
def test_usage_has_every_flag_and_the_name_it_was_started_by() -> None:
    text = usage(parse_flags([], "/opt/nats-server").name)
    assert text.startswith("\nUsage: nats-server [options]\n")
    for name in ("-a, --addr, --net", "-sl, --signal", "-DVV", "--tlscacert", "--help_tls"):
        assert name in text.replace("-ms,--", "-ms, --")
    for command in COMMANDS:
        assert f"\n    {command} " in text


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-p", "70000"], "--port is from -1 (a free one) to 65535, got 70000"),
        (["-m", "-2"], "--http_port is from -1 (a free one) to 65535, got -2"),
        (["--log_format", "x"], '--log_format must be text or json, got "x"'),
        (["-n", "a b"], "server name cannot contain spaces"),
    ],
)
def test_wrong_values(words: list[str], text: str) -> None:
    with pytest.raises(FlagError) as caught:
        parse_flags(words)
    assert str(caught.value) == text


def test_numbers_as_go_reads_them() -> None:
    assert [options(f"-p {text}").port for text in ("0x10", "010", "+5")] == [16, 8, 5]


@pytest.mark.feature("2-022")
def test_secret_arguments_are_blanked() -> None:
    line = "-p 1 --user u -pass=p --auth t --routes nats://u:p@h:1 -D"
    assert redact_arguments(line.split()) == (
        [
            "-p",
            "1",
            "--user",
            "[REDACTED]",
            "-pass=[REDACTED]",
            "--auth",
            "[REDACTED]",
            "--routes",
            "[REDACTED]",
            "-D",
        ]
    )
