"""What may change while the server runs, and what the log says about it."""

from pathlib import Path

import pytest

from config.options import Options
from config.reload import RELOADABLE, ReloadError, diff, fields
from tests.unit.config_files import options


def logs(folder: Path, old: str, new: str) -> list[str]:
    return [change.log for change in diff(options(folder, old), options(folder, new))]


def refusal(folder: Path, old: str, new: str) -> str:
    before, after = options(folder, old), options(folder, new)
    with pytest.raises(ReloadError) as caught:
        diff(before, after)
    return str(caught.value)


def test_every_reloadable_field_exists() -> None:
    assert set(RELOADABLE) <= set(fields(Options()))


def test_no_change() -> None:
    assert diff(Options(), Options(config_digest="x")) == []


@pytest.mark.feature("2-041", "3-027", "3-031", "3-033")
@pytest.mark.parametrize(
    ("new", "text"),
    [
        ("debug: true", "debug = true"),
        ("logtime: false", "logtime = false"),
        ("log_file: /x", "log_file = /x"),
        ("max_payload: 1k", "max_payload = 1000"),
        ("max_connections: 5", "max_connections = 5"),
        ("max_control_line: 5", "max_control_line = 5"),
        ("ping_interval: 90s", "ping_interval = 1m30s"),
        ("ping_max: 5", "ping_max = 5"),
        ("write_deadline: 250ms", "write_deadline = 250ms"),
        ("authorization { timeout: 1.5 }", "authorization timeout = 1.5"),
        ("authorization { token: t }", "authorization token"),
        ("authorization { users: [{user: a}] }", "authorization users"),
        ("server_tags: a", "tags"),
        ("no_fast_producer_stall: true", "fast producers will not be stalled"),
    ],
)
def test_changes_and_their_texts(tmp_path: Path, new: str, text: str) -> None:
    assert f"Reloaded: {text}" in logs(tmp_path, "", new)


@pytest.mark.feature("3-088", "3-024", "3-032", "3-034", "3-035")
@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("", "port: 5", "Port: old=4222, new=5"),
        ("", "host: h", "Host: old=0.0.0.0, new=h"),
        ("", "server_name: x", "ServerName: old=, new=x"),
        ("", "max_subs: 3", "MaxSubs: old=0, new=3"),
        ("", "max_sub_tokens: 3", "MaxSubTokens: old=0, new=3"),
        ("", "max_pending: 2mb", "MaxPending: old=67108864, new=2097152"),
        ("", "max_closed_clients: 5", "MaxClosedClients: old=10000, new=5"),
        ("", "lame_duck_duration: 30s", "LameDuckDuration: old=2m0s, new=30s"),
        ("", "http_port: 1", "HTTPPort: old=0, new=1"),
        ("", "no_header_support: true", "NoHeaderSupport: old=false, new=true"),
        ("", "feature_flags { b: true, a: false }", "old=map[], new=map[a:false b:true]"),
        ("", "accounts: [A]\nsystem_account: A", "SystemAccount: old=, new=A"),
    ],
)
def test_changes_that_need_a_restart(tmp_path: Path, old: str, new: str, text: str) -> None:
    got = refusal(tmp_path, old, new + "\ndebug: true")
    assert got.startswith("config reload not supported for ")
    assert got.endswith(text)


@pytest.mark.feature("3-038")
def test_no_auth_user_goes_only_with_its_user(tmp_path: Path) -> None:
    users = "authorization { users: [ {user: a}, {user: b} ] }"
    assert "NoAuthUser" in refusal(tmp_path, users + "\nno_auth_user: a", users)
    without = "authorization { users: [ {user: b} ] }"
    assert logs(tmp_path, users + "\nno_auth_user: a", without) == ["Reloaded: authorization users"]


def test_jetstream_limits_only_grow(tmp_path: Path) -> None:
    small, big = "jetstream { max_mem: 1gb }", "jetstream { max_mem: 2gb }"
    assert logs(tmp_path, small, big) == ["Reloaded: JetStream max_mem_store = 2147483648"]
    assert "JetStreamMaxMemory" in refusal(tmp_path, big, small)
    assert "JetStreamMaxMemory" in refusal(tmp_path, "jetstream: true", small)
    assert logs(tmp_path, small, "jetstream: false") == ["Reloaded: JetStream"]
    assert logs(tmp_path, "", 'jetstream { max_mem: 1gb, store_dir: "/x" }') == [
        "Reloaded: JetStream"
    ]


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    text = refusal(tmp_path, "jetstream {key: one}", "jetstream {key: two}")
    assert "one" not in text
    assert "two" not in text


def test_tls_is_always_loaded_again() -> None:
    from config.options import CertificatePair, TlsOptions

    tls = TlsOptions(certificates=(CertificatePair("c", "k"),))
    assert [change.field for change in diff(Options(tls=tls), Options(tls=tls))] == ["tls"]
    assert diff(Options(tls=tls), Options())[0].log == "Reloaded: tls = disabled"
