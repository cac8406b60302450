"""Who gets in, seen from the socket."""

from __future__ import annotations

import base64
import select
import time
from pathlib import Path

import bcrypt
import pytest
from nacl.signing import SigningKey

from server.auth.nkeys import Kind, encode_public
from tests.e2e.server import RawClient, ServerProcess, wait_for

HASHED = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
SLOW_HASHED = bcrypt.hashpw(b"secret", bcrypt.gensalt(11)).decode()
VIOLATION = "-ERR 'Authorization Violation'"


def gets_in(server: ServerProcess, **credentials: str) -> bool:
    """Whether a CONNECT with these is answered by PONG rather than a violation and a close."""
    with server.connect() as client:
        client.info()
        client.connect_with(**credentials)
        answer = client.line()
        if answer == "PONG":
            return True
        assert answer == VIOLATION
        assert client.closed()
        return False


@pytest.mark.feature("4-002", "1-007", "1-035")
@pytest.mark.parametrize("token", ["secret", HASHED], ids=["plain", "bcrypt"])
def test_a_token(tmp_path: Path, token: str) -> None:
    config = f'authorization {{ token: "{token}" }}'
    with ServerProcess(tmp_path, config=config) as server:
        with server.connect() as client:
            assert client.info()["auth_required"] is True
        assert gets_in(server, auth_token="secret")
        assert not gets_in(server, auth_token="wrong")
        assert not gets_in(server, user="secret")
        assert not gets_in(server)
        server.wait_log(r'\[ERR\] \S+ - cid:\d+ - authentication error - Token "\[REDACTED\]"')


@pytest.mark.feature("4-003", "2-051", "4-010")
@pytest.mark.parametrize("password", ["secret", HASHED], ids=["plain", "bcrypt"])
def test_one_user_and_password(tmp_path: Path, password: str) -> None:
    config = f'authorization {{ user: ann, password: "{password}" }}'
    with ServerProcess(tmp_path, config=config) as server:
        assert gets_in(server, user="ann", **{"pass": "secret"})
        assert not gets_in(server, user="ann", **{"pass": "wrong"})
        assert not gets_in(server, user="bob", **{"pass": "secret"})
        server.wait_log(r'\[ERR\] 127\.0\.0\.1:\d+ - cid:\d+ - authentication error - User "bob"')
        plain = any("Plaintext passwords detected" in line for line in server.log())
        assert plain == (password == "secret")


@pytest.mark.feature("4-004")
def test_plain_passwords_are_warned_about(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--user", "ann", "--pass", "secret") as server:
        server.wait_log(r"\[WRN\] Plaintext passwords detected, use nkeys or bcrypt")


@pytest.mark.feature("4-001", "4-003", "4-024", "4-025", "1-099")
def test_several_users_with_permissions(tmp_path: Path) -> None:
    config = f"""
    authorization {{
      default_permissions {{ publish: "default.>", subscribe: "default.>" }}
      users = [
        {{ user: ann, password: "{HASHED}", permissions {{
            publish: {{ allow: "foo.*", deny: "foo.bad" }}, subscribe: ["bar", "q.* workers"] }} }}
        {{ user: bob, password: "hush" }}
      ]
    }}
    """
    with ServerProcess(tmp_path, config=config) as server:
        assert not gets_in(server, user="carl", **{"pass": "secret"})
        with server.connect() as client:
            client.handshake(user="ann", **{"pass": "secret"})
            client.send(
                "PUB foo.bad 0\r\n\r\nPUB other 0\r\n\r\nSUB foo.a 1\r\nSUB bar 2\r\nPING\r\n"
            )
            client.expect("-ERR 'Permissions Violation for Publish to \"foo.bad\"'")
            client.expect("-ERR 'Permissions Violation for Publish to \"other\"'")
            client.expect("-ERR 'Permissions Violation for Subscription to \"foo.a\"'")
            client.expect("PONG")
            client.send("SUB q.1 2\r\nSUB q.1 workers 3\r\nPING\r\n")
            client.expect("-ERR 'Permissions Violation for Subscription to \"q.1\"'")
            client.expect("PONG")
            server.wait_log(r'"\$G/user:ann" - Publish Violation - Subject "foo.bad"')
        with server.connect() as client:
            client.handshake(user="bob", **{"pass": "hush"})
            client.send("SUB default.a 1\r\nPUB default.a 1\r\nx\r\nPUB foo.a 0\r\n\r\n")
            client.expect("MSG default.a 1 1")
            client.expect("x")
            client.expect("-ERR 'Permissions Violation for Publish to \"foo.a\"'")


@pytest.mark.feature("4-023")
def test_who_may_only_answer_publishes_nothing_else(tmp_path: Path) -> None:
    config = """
    authorization { users = [
      { user: service, password: s, permissions { subscribe: "req", allow_responses: true } }
      { user: ann, password: a }
    ] }
    """
    with (
        ServerProcess(tmp_path, config=config) as server,
        server.connect() as service,
        server.connect() as ann,
    ):
        service.handshake(user="service", **{"pass": "s"})
        ann.handshake(user="ann", **{"pass": "a"})
        service.send("SUB req 1\r\nPUB other 0\r\n\r\nPING\r\n")
        service.expect("-ERR 'Permissions Violation for Publish to \"other\"'")
        service.expect("PONG")
        ann.send("SUB inbox 1\r\nPUB req inbox 0\r\n\r\n")
        service.expect("MSG req 1 inbox 0")
        service.send("PUB inbox 2\r\nok\r\nPUB inbox 2\r\nno\r\nPING\r\n")
        ann.expect("MSG inbox 1 2")
        service.expect("")
        service.expect("-ERR 'Permissions Violation for Publish to \"inbox\"'")


def signed_in(client: RawClient, key: SigningKey, *, standard: bool = False) -> str:
    """CONNECT with the signature of INFO's nonce; the answer."""
    nonce = client.info()["nonce"]
    assert len(nonce) == 15
    signature = key.sign(nonce.encode()).signature
    if standard:
        sig = base64.b64encode(signature).decode()
    else:
        sig = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    client.connect_with(nkey=encode_public(Kind.USER, bytes(key.verify_key)), sig=sig)
    return client.line()


@pytest.mark.feature("4-005", "1-008", "1-025")
def test_an_nkey_user_signs_the_nonce(tmp_path: Path) -> None:
    key, other = SigningKey.generate(), SigningKey.generate()
    public = encode_public(Kind.USER, bytes(key.verify_key))
    config = f"authorization {{ users = [ {{ nkey: {public} }} ] }}"
    with ServerProcess(tmp_path, config=config) as server:
        with server.connect() as client:
            assert signed_in(client, key) == "PONG"
        with server.connect() as client:
            assert signed_in(client, key, standard=True) == "PONG"
        with server.connect() as client:
            assert signed_in(client, other) == VIOLATION
        assert not gets_in(server, nkey=public)
        server.wait_log(r'authentication error - Nkey "U')
        with server.connect() as one, server.connect() as two:
            assert one.info()["nonce"] != two.info()["nonce"]


@pytest.mark.feature("4-006", "1-033", "1-007")
def test_no_auth_user_lets_in_who_gives_no_credentials(tmp_path: Path) -> None:
    config = """
    no_auth_user: guest
    authorization { users = [
      { user: guest, password: g, permissions { publish: "open" } }
      { user: ann, password: a }
    ] }
    """
    with ServerProcess(tmp_path, config=config) as server:
        with server.connect() as client:
            assert "auth_required" not in client.info()
            client.send("PUB closed 0\r\n\r\nPING\r\n")
            client.expect("-ERR 'Permissions Violation for Publish to \"closed\"'")
            client.expect("PONG")
        assert gets_in(server)
        assert gets_in(server, user="ann", **{"pass": "a"})
        assert not gets_in(server, user="ann", **{"pass": "b"})


@pytest.mark.feature("1-033", "1-034")
def test_the_first_verb_must_be_connect_when_authentication_is_required(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "--auth", "secret") as server, server.connect() as client:
        client.info()
        client.send("PING\r\n")
        client.expect(VIOLATION)
        assert client.closed()
    with ServerProcess(tmp_path) as server, server.connect() as client:
        client.info()
        client.send("SUB a 1\r\nPUB a 0\r\n\r\nPING\r\n")
        assert [client.line() for _ in range(3)] == ["+OK", "+OK", "MSG a 1 0"]


@pytest.mark.feature("1-036")
def test_a_client_that_does_not_log_in_is_closed_after_the_timeout(tmp_path: Path) -> None:
    config = 'authorization { token: t, timeout: "300ms" }'
    with ServerProcess(tmp_path, config=config) as server:
        began = time.monotonic()
        with server.connect() as client:
            client.info()
            client.expect("-ERR 'Authentication Timeout'")
            assert client.closed()
            assert time.monotonic() - began >= 0.29


@pytest.mark.feature("4-030", "4-007", "1-015")
def test_accounts_are_spaces_of_their_own(tmp_path: Path) -> None:
    config = """
    accounts {
      A { users = [ { user: ann, password: a } ] }
      B { users = [ { user: bob, password: b } ] }
    }
    """
    with ServerProcess(tmp_path, config=config) as server:
        with server.connect() as ann, server.connect() as ann2, server.connect() as bob:
            ann.handshake(user="ann", **{"pass": "a"})
            bob.handshake(user="bob", **{"pass": "b"})
            ann2.info()
            ann2.connect_with(user="ann", protocol=1, **{"pass": "a"})
            ann2.expect("PONG")
            assert ann2.info()["remote_account"] == "A"
            for client in (ann, bob):
                client.send("SUB foo 1\r\nPING\r\n")
                client.expect("PONG")
            ann2.send("PUB foo 2\r\nhi\r\nPING\r\n")
            ann2.expect("PONG")
            ann.expect("MSG foo 1 2")
            bob.send("PING\r\n")
            bob.expect("PONG")
        assert not gets_in(server)


@pytest.mark.feature("4-007", "3-087")
def test_users_of_the_system_account_alone_leave_the_rest_open(tmp_path: Path) -> None:
    config = "accounts { $SYS { users = [ { user: admin, password: s3cret } ] } }"
    with ServerProcess(tmp_path, config=config) as server:
        with server.connect() as client:
            assert client.info()["auth_required"] is True
            client.connect_with(protocol=1)
            client.expect("PONG")
            info = client.info()
            assert (info["remote_account"], info.get("acc_is_sys", False)) == ("$G", False)
        with server.connect() as client:
            client.info()
            client.connect_with(protocol=1, user="admin", **{"pass": "s3cret"})
            client.expect("PONG")
            info = client.info()
            assert (info["remote_account"], info["acc_is_sys"]) == ("$SYS", True)
        assert not gets_in(server, user="admin", **{"pass": "wrong"})


@pytest.mark.feature("4-008")
def test_connection_types_filter_the_users(tmp_path: Path) -> None:
    config = """
    authorization { users = [
      { user: ann, password: a, allowed_connection_types: [websocket] }
      { user: bob, password: b, allowed_connection_types: [websocket, standard] }
    ] }
    """
    with ServerProcess(tmp_path, config=config) as server:
        assert not gets_in(server, user="ann", **{"pass": "a"})
        assert gets_in(server, user="bob", **{"pass": "b"})


@pytest.mark.feature("1-031")
def test_a_second_connect_logs_in_anew(tmp_path: Path) -> None:
    config = """
    accounts {
      A { users = [ { user: ann, password: a } ] }
      B { users = [ { user: bob, password: b } ] }
    }
    """
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.handshake(user="ann", **{"pass": "a"})
        client.send("SUB foo 1\r\nPING\r\n")
        client.expect("PONG")
        client.connect_with(user="bob", **{"pass": "b"})
        client.expect("PONG")
        client.send("PUB foo 0\r\n\r\nPING\r\n")
        client.expect("PONG")
        client.connect_with(user="bob", **{"pass": "wrong"})
        client.expect(VIOLATION)
        assert client.closed()


@pytest.mark.feature("1-029")
@pytest.mark.parametrize("key", ["account", "new_account"])
def test_the_old_account_keys_are_a_violation(tmp_path: Path, key: str) -> None:
    with ServerProcess(tmp_path) as server, server.connect() as client:
        client.info()
        client.connect_with(**{key: "A" if key == "account" else True})
        client.expect(VIOLATION)
        assert client.closed()


def readable(client: RawClient) -> bool:
    watched = select.poll()
    watched.register(client.socket, select.POLLIN)
    return bool(watched.poll(0))


@pytest.mark.feature("4-003")
def test_a_storm_of_slow_logins_does_not_stop_the_others(tmp_path: Path) -> None:
    config = f"""
    authorization {{ users = [
      {{ user: slow, password: "{SLOW_HASHED}" }}
      {{ user: quick, password: q }}
    ] }}
    """
    with ServerProcess(tmp_path, config=config) as server, server.connect() as quick:
        quick.handshake(user="quick", **{"pass": "q"})
        storm = [server.connect() for _ in range(10)]
        for client in storm:
            client.info()
        for client in storm:
            client.connect_with(user="slow", **{"pass": "secret"})
        # On the loop, the line of checks would be over before the first of these is answered.
        for _ in range(20):
            quick.send("PING\r\n")
            quick.expect("PONG")
        assert not all(readable(client) for client in storm)
        for client in storm:
            client.expect("PONG")
            client.socket.close()


@pytest.mark.feature("2-043")
def test_the_account_and_user_follow_the_name_in_the_log(tmp_path: Path) -> None:
    config = "accounts { A { users = [ { user: ann, password: a } ] } }"
    with ServerProcess(tmp_path, "-D", config=config) as server, server.connect() as client:
        client.handshake(user="ann", name="app", lang="py", version="2", **{"pass": "a"})
        client.socket.close()
        server.wait_log(
            r'\[DBG\] \S+ - cid:\d+ - "v2:py:app" - "A/user:ann" - Client connection closed'
        )


@pytest.mark.feature("1-093")
def test_an_account_takes_so_many_connections(tmp_path: Path) -> None:
    config = (
        "accounts { A { limits { max_connections: 1 }, users = [ { user: ann, password: a } ] } }"
    )
    with ServerProcess(tmp_path, config=config) as server, server.connect() as client:
        client.handshake(user="ann", **{"pass": "a"})
        with server.connect() as second:
            second.info()
            second.connect_with(user="ann", **{"pass": "a"})
            second.expect("-ERR 'maximum account active connections exceeded'")
            assert second.closed()
        client.socket.close()

        def free_again() -> bool:
            with server.connect() as third:
                third.info()
                third.connect_with(user="ann", **{"pass": "a"})
                return third.line() == "PONG"

        wait_for(free_again, "the place to be free again")
