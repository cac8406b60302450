"""SIGHUP: what changes live, what is refused, and who is closed."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.server import ServerProcess, run, wait_for

USERS = """
authorization {{ users = [
  {{ user: ann, password: {ann}, permissions {{ publish: {may}, subscribe: {may} }} }}
  {{ user: bob, password: b }}
] }}
"""


@pytest.mark.feature("2-026", "2-029", "2-041", "3-088")
def test_a_reload_is_logged_with_what_changed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="debug: false\n") as server:
        line = server.reload("debug: true\n")
        assert line.rpartition(" (sha256:")[0].endswith("[INF] Reloaded server configuration")
        server.wait_log('Trapped "hangup" signal')
        server.wait_log("Reloaded: debug = true")
        with server.connect() as client:
            client.info()
            server.wait_log("Client connection created")


@pytest.mark.feature("3-088")
def test_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="max_payload: 1000\n") as server:
        line = server.reload("max_payload: 2000\nnonsense: 1\n")
        assert "Failed to reload server configuration: " in line
        assert 'unknown field "nonsense"' in line
        with server.connect() as client:
            assert client.info()["max_payload"] == 1000


@pytest.mark.feature("3-013", "3-088")
def test_a_warning_of_a_reload_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with ServerProcess(tmp_path, "-l", str(log), config="debug: false\n", ready=False) as server:
        wait_for(lambda: log.exists() and "Server is ready" in log.read_text(), "the start")
        server.rewrite_config("ping_interval: 90\n")
        server.signal(signal.SIGHUP)
        wait_for(lambda: "Reloaded server configuration" in log.read_text(), "the reload")
        warned = [line for line in log.read_text().splitlines() if "[WRN]" in line]
        assert "ping_interval should be converted to a duration" in warned[-1]


@pytest.mark.feature("3-088")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ("max_pending: 1000000", "MaxPending"),
        ('server_name: "other"', "ServerName"),
        ("max_subscriptions: 5", "MaxSubs"),
        ("host: 127.0.0.1", "Host"),
    ],
)
def test_one_unsupported_change_refuses_all(tmp_path: Path, change: str, field: str) -> None:
    with ServerProcess(tmp_path, config="max_payload: 1000\n") as server:
        line = server.reload(f"max_payload: 2000\n{change}\n")
        assert f"config reload not supported for {field}: old=" in line
        with server.connect() as client:
            assert client.info()["max_payload"] == 1000


@pytest.mark.feature("3-089", "1-018")
def test_new_limits_hold_for_new_and_present_clients(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="max_payload: 1000\n") as server:
        with server.connect() as client:
            client.handshake()
            server.reload("max_payload: 10\nmax_control_line: 100\n")
            server.wait_log("Reloaded: max_payload = 10")
            with server.connect() as second:
                assert second.info()["max_payload"] == 10
            client.send("PUB foo 11\r\n")
            client.expect("-ERR 'Maximum Payload Violation'")


@pytest.mark.feature("3-089")
def test_clients_whose_user_changed_are_closed_and_others_stay(tmp_path: Path) -> None:
    config = USERS.format(ann="a", may='">"')
    with ServerProcess(tmp_path, config=config) as server:
        with server.connect() as ann, server.connect() as bob:
            ann.handshake(user="ann", **{"pass": "a"})
            bob.handshake(user="bob", **{"pass": "b"})
            bob.send("SUB foo 1\r\nPING\r\n")
            bob.expect("PONG")
            server.reload(USERS.format(ann="changed", may='">"'))
            ann.expect("-ERR 'Authorization Violation'")
            assert ann.closed()
            server.wait_log('authentication error - User "ann"')
            bob.send("PUB foo 0\r\n\r\n")
            bob.expect("MSG foo 1 0")


@pytest.mark.feature("3-089")
def test_clients_of_a_removed_user_are_closed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config=USERS.format(ann="a", may='">"')) as server:
        with server.connect() as ann:
            ann.handshake(user="ann", **{"pass": "a"})
            server.reload("authorization { users = [ { user: bob, password: b } ] }\n")
            assert ann.closed()


@pytest.mark.feature("3-089")
def test_clients_whose_user_moved_to_another_account_are_closed(tmp_path: Path) -> None:
    config = "accounts {{ A {{ users = [ {a} ] }}, B {{ users = [ {b} ] }} }}"
    ann, bob = "{ user: ann, password: a }", "{ user: bob, password: b }"
    with ServerProcess(tmp_path, config=config.format(a=f"{ann}, {bob}", b="")) as server:
        with server.connect() as moved, server.connect() as stays:
            moved.handshake(user="ann", **{"pass": "a"})
            stays.handshake(user="bob", **{"pass": "b"})
            server.reload(config.format(a=bob, b=ann))
            assert moved.line() == ""
            stays.send("PING\r\n")
            stays.expect("PONG")


@pytest.mark.feature("3-090", "1-100")
def test_subscriptions_that_are_no_longer_allowed_go(tmp_path: Path) -> None:
    config = USERS.format(ann="a", may='["foo", "bar"]')
    with ServerProcess(tmp_path, config=config) as server, server.connect() as ann:
        ann.handshake(user="ann", **{"pass": "a"})
        ann.send("SUB foo 1\r\nSUB bar 2\r\nPING\r\n")
        ann.expect("PONG")
        server.reload(USERS.format(ann="a", may="bar"))
        ann.expect('-ERR \'Permissions Violation for Subscription to "foo" (sid "1")\'')
        ann.send("PUB foo 0\r\n\r\nPUB bar 0\r\n\r\n")
        ann.expect("-ERR 'Permissions Violation for Publish to \"foo\"'")
        ann.expect("MSG bar 2 0")


@pytest.mark.feature("3-089")
def test_switching_authentication_on_closes_who_has_none(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="debug: false\n") as server, server.connect() as client:
        client.handshake()
        server.reload("authorization { token: t }\n")
        client.expect("-ERR 'Authorization Violation'")
        with server.connect() as second:
            assert second.info()["auth_required"] is True
        server.reload("debug: false\n")
        with server.connect() as third:
            assert "auth_required" not in third.handshake()


@pytest.mark.feature("3-091", "3-032")
def test_a_smaller_number_of_connections_closes_the_surplus(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="max_connections: 10\n") as server:
        clients = [server.connect() for _ in range(5)]
        for client in clients:
            client.handshake()
        server.reload("max_connections: 2\n")
        server.wait_log("Closed 3 connections to fall within max_connections")
        server.wait_log("Reloaded: max_connections = 2")
        told = 0
        for client in clients:
            client.send("PING\r\n")
            told += client.line() == "-ERR 'maximum connections exceeded'"
            client.socket.close()
        assert told == 3


@pytest.mark.feature("3-091")
def test_a_smaller_number_for_an_account_closes_its_surplus(tmp_path: Path) -> None:
    with_limit = """accounts {
      A { users: [ {user: a, password: a} ], limits { max_conn: %d } }
      B { users: [ {user: b, password: b} ] }
    }"""
    with ServerProcess(tmp_path, config=with_limit % 10) as server, ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(6)]
        for client, user in zip(clients, "aaaabb", strict=True):
            client.handshake(user=user, **{"pass": user})
        server.reload(with_limit % 1)
        server.wait_log("Reloaded server configuration")
        answers = []
        for client in clients:
            client.send("PING\r\n")
            answers.append(client.line())
        assert answers[4:] == ["PONG", "PONG"]
        refusal = "-ERR 'maximum account active connections exceeded'"
        assert sorted(answers[:4]) == [*3 * [refusal], "PONG"]


@pytest.mark.feature("2-014", "3-027")
def test_flags_win_again_at_each_reload(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "-D=false", config="debug: true\n") as server:
        assert "Reloaded server" in server.reload("debug: true\ntrace: true\n")
        with server.connect() as client:
            client.handshake()
            server.wait_log("<<- \\[CONNECT")
            assert not any("[DBG]" in line for line in server.log())


@pytest.mark.feature("3-027")
def test_traces_of_present_clients_can_be_switched(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="trace: false\n") as server, server.connect() as client:
        client.handshake()
        server.reload("trace: true\n")
        client.send("PUB foo 0\r\n\r\nPING\r\n")
        client.expect("PONG")
        server.wait_log(r"<<- \[PUB foo 0\]")
        server.reload("trace: false\n")
        seen = len(server.log())
        client.send("PUB foo 0\r\n\r\nPING\r\n")
        client.expect("PONG")
        assert not any("PUB foo" in line for line in server.log()[seen:])


@pytest.mark.feature("3-028", "3-029", "2-031")
def test_files_move_at_a_reload(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="debug: false\n") as server:
        log, pid_file, ports = tmp_path / "s.log", tmp_path / "s.pid", tmp_path / "ports"
        ports.mkdir()
        server.rewrite_config(
            f'logfile: "{log}"\npid_file: "{pid_file}"\nports_file_dir: "{ports}"\n'
        )
        server.signal(signal.SIGHUP)
        wait_for(lambda: log.exists() and "Reloaded server" in log.read_text(), "the new log")
        assert pid_file.read_text() == str(server.pid)
        wait_for(lambda: list(ports.glob("*.ports")), "the ports file")


@pytest.mark.feature("2-031")
def test_a_pid_file_that_cannot_be_written_at_a_reload_is_only_logged(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="debug: false\n") as server:
        server.reload(f'pid_file: "{tmp_path}/no/x.pid"\n')
        server.wait_log(r"\[ERR\] Failed to write pidfile")
        with server.connect() as client:
            client.handshake()


@pytest.mark.feature("3-025")
def test_the_advertised_address_changes_what_info_says(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config='client_advertise: "a.example:1"\n') as server:
        with server.connect() as client:
            info = client.info()
            assert (info["host"], info["port"]) == ("a.example", 1)
        server.reload('client_advertise: "b.example:2"\n')
        with server.connect() as client:
            info = client.info()
            assert (info["host"], info["port"]) == ("b.example", 2)
        server.reload("debug: false\n")
        with server.connect() as client:
            assert client.info()["port"] == server.port


@pytest.mark.feature("3-025", "3-088")
def test_a_wrong_advertised_address_changes_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="max_payload: 1000\n") as server:
        told = server.reload('client_advertise: "h:x"\nmax_payload: 2000\n')
        assert "Failed to reload server configuration" in told
        assert 'could not parse port "x"' in told
        with server.connect() as client:
            info = client.info()
            assert (info["port"], info["max_payload"]) == (server.port, 1000)


@pytest.mark.feature("3-033")
def test_pings_follow_the_new_interval(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config='ping_interval: "1h"\n') as server:
        with server.connect() as client:
            client.handshake()
            server.reload('ping_interval: "200ms"\nping_max: 1\n')
            with server.connect() as silent:
                silent.handshake()
                began = time.monotonic()
                data = b""
                while b"Stale" not in data and time.monotonic() - began < 8:
                    more = silent.socket.recv(1000)
                    if not more:
                        break
                    data += more
                assert b"-ERR 'Stale Connection'" in data


@pytest.mark.feature("2-027")
def test_the_command_can_ask_for_a_reload(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config="debug: false\n") as server:
        server.rewrite_config("debug: true\n")
        assert run("--signal", f"reload={server.pid}").returncode == 0
        server.wait_log("Reloaded server configuration")
