"""Lame duck mode, seen by connected clients."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.e2e.server import ServerProcess, run

# The shortest that the configuration allows.
CONFIG = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "2s"\n'


def refused(server: ServerProcess) -> bool:
    try:
        socket.create_connection((server.host, server.port), timeout=30).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.feature("7-011", "7-009", "2-025")
def test_without_clients_it_ends_at_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        server.signal(signal.SIGUSR2)
        assert server.wait_exit() == 0
        server.wait_log('Trapped "user defined signal 2" signal')
        server.wait_log("Entering lame duck mode, stop accepting new clients")
        server.wait_log("Server Exiting..")


@pytest.mark.feature("7-010", "7-009", "7-012", "1-017", "2-025", "2-027")
def test_clients_are_told_and_closed_one_by_one(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, config=CONFIG) as server:
        new, old = server.connect(), server.connect()
        new.info()
        new.connect_with(protocol=1)
        new.expect("PONG")
        assert new.info()["connect_info"] is True
        old.handshake(protocol=0)
        began = time.monotonic()
        assert run("--signal", f"ldm={server.pid}").returncode == 0
        info = new.info()
        assert info["ldm"] is True
        assert "connect_urls" not in info
        assert refused(server)
        # Neither a second order nor a plain end disturbs it.
        server.signal(signal.SIGUSR2)
        server.signal(signal.SIGTERM)
        new.send("SUB foo 1\r\nPUB foo 0\r\n\r\n")
        new.expect("MSG foo 1 0")
        assert new.line() == ""
        server.wait_log("Closing existing clients")
        assert new.closed()
        assert old.closed()
        assert server.wait_exit() == 0
        # Behind the grace period there is at most a second between two clients.
        assert 1.9 <= time.monotonic() - began < 20
        entered = [line for line in server.log() if "Entering lame duck mode" in line]
        assert len(entered) == 1
        new.socket.close()
        old.socket.close()


@pytest.mark.feature("7-010")
def test_an_interrupt_ends_it_early(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, server.connect() as client:
        client.handshake()
        server.signal(signal.SIGUSR2)
        server.wait_log("Entering lame duck mode")
        server.signal(signal.SIGINT)
        assert client.line() == ""
        assert server.wait_exit() == 0


@pytest.mark.feature("5-051", "7-010", "7-020")
def test_the_system_account_hears_of_it(tmp_path: Path) -> None:
    config = CONFIG + "accounts { $SYS { users = [ { user: admin, password: s } ] } }\n"
    with ServerProcess(tmp_path, "--name", "n1", config=config) as server:
        with server.connect() as admin:
            info = admin.handshake(user="admin", **{"pass": "s"})
            admin.send("SUB $SYS.SERVER.*.* 1\r\nPING\r\n")
            admin.expect("PONG")
            server.signal(signal.SIGUSR2)
            server.wait_log("Entering lame duck mode")
            server.signal(signal.SIGINT)
            subjects = []
            while len(subjects) < 2:
                line = admin.expect("MSG ")
                event = json.loads(admin.line())
                if line.split()[1].rpartition(".")[2] in ("LAMEDUCK", "SHUTDOWN"):
                    subjects.append(line.split()[1])
                    assert (event["name"], event["id"]) == ("n1", info["server_id"])
            prefix = f"$SYS.SERVER.{info['server_id']}"
            assert subjects == [f"{prefix}.LAMEDUCK", f"{prefix}.SHUTDOWN"]
            assert admin.line() == ""
