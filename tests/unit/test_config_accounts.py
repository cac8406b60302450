"""Users, permissions, accounts."""

from pathlib import Path

import pytest

from config.accounts import is_public_key
from config.load import read_file
from config.options import PermissionOptions, ResponsePermission, SubjectPermission
from config.subjects import is_valid_subject
from tests.unit.config_files import options, problems, write

USER_KEY = "UAC5FI5LMCCEGVJTKTTEF2EJK22NSKWG6CTQGISOOEGYHOBHOD6MFYSB"
ACCOUNT_KEY = "ABFE2J5U7VXCKLFKA6EOKYK3EJRHCHUP6TVDVMJKDLSDOCGETIIGTZUC"


@pytest.mark.parametrize(
    ("subject", "valid"),
    [
        *((subject, True) for subject in ("a.b", "a.*.>", ">", "a>")),
        *((subject, False) for subject in ("", "a..b", "a.>.b", "a b", ".a", "a.", "a\tb")),
    ],
)
def test_subjects(subject: str, valid: bool) -> None:
    assert is_valid_subject(subject) is valid


@pytest.mark.feature("3-082")
def test_single_user_and_token(tmp_path: Path) -> None:
    auth = options(tmp_path, "authorization { username: u, pass: p, timeout: 1.5 }").auth
    assert (auth.user, auth.password, auth.timeout_ns) == ("u", "p", 1_500_000_000)
    auth = options(tmp_path, "authorization { token: t, timeout: '3s' }").auth
    assert (auth.token, auth.timeout_ns, auth.defined) == ("t", 3_000_000_000, True)
    assert "wrong" not in repr(auth)


@pytest.mark.feature("3-081", "4-008", "4-020", "4-021", "4-023")
def test_users_and_permissions(tmp_path: Path) -> None:
    auth = options(
        tmp_path,
        """
        P { pub: [a, b.>], subscribe: { allow: "c q", deny: [d] }, allow_responses: true }
        authorization {
          default_permissions { publish: x }
          users: [
            { user: a, password: $2a$11$abc, permissions: $P }
            { user: b, allowed_connection_types: [standard, WEBSOCKET] }
            { user: c, permissions { allow_responses { max: -1, ttl: "5s" }, pub { deny: z } } }
          ]
        }
        """,
    ).auth
    assert [user.name for user in auth.users] == ["a", "b", "c"]
    assert auth.users[0].password == "$2a$11$abc"
    assert auth.users[0].permissions == PermissionOptions(
        publish=SubjectPermission(("a", "b.>")),
        subscribe=SubjectPermission(("c q",), ("d",)),
        allow_responses=ResponsePermission(),
    )
    assert auth.users[1].permissions is None
    assert auth.users[1].allowed_connection_types == {"STANDARD", "WEBSOCKET"}
    assert auth.users[2].permissions == PermissionOptions(
        publish=SubjectPermission((), ("z",)),
        allow_responses=ResponsePermission(-1, 5_000_000_000),
    )
    assert auth.default_permissions == PermissionOptions(publish=SubjectPermission(("x",)))


@pytest.mark.feature("3-078", "3-079")
def test_accounts(tmp_path: Path) -> None:
    got = options(
        tmp_path,
        f"""
        accounts {{
          U: [ {{ user: s, password: s }} ]
          A {{
            nkey: {ACCOUNT_KEY}
            users: [ {{ nkey: {USER_KEY} }}, {{ user: x, password: y }} ]
            limits {{ max_conn: 5, max_pay: 1kb }}
            jetstream {{ max_mem: 1gb }}
          }}
          B {{ users: $U }}
        }}
        system_account: B
        no_auth_user: x
        """,
    )
    first, second = got.accounts
    assert (first.name, first.nkey, second.name) == ("A", ACCOUNT_KEY, "B")
    assert (first.max_connections, first.max_payload_bytes) == (5, 1024)
    assert first.max_subscriptions == -1
    assert first.jetstream
    assert first.jetstream.max_memory_bytes == 2**30
    assert [(user.nkey, user.name, user.account) for user in got.auth.users] == [
        (USER_KEY, "", "A"),
        ("", "x", "A"),
        ("", "s", "B"),
    ]
    assert got.auth.no_auth_user == "x"
    assert [account.name for account in options(tmp_path, "accounts: [C, D]").accounts] == [
        "C",
        "D",
    ]


@pytest.mark.feature("3-083", "4-009")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("authorization {user: a, pass: b, token: c}", "Cannot have a user/pass and token"),
        (
            "authorization {user: a, users: []}",
            "Can not have a single user/pass and a users array",
        ),
        ("authorization {token: a, users: []}", "Can not have a token and a users array"),
        ("authorization {users: [{user: a}, {user: a}]}", 'Duplicate user "a" detected'),
        (
            "authorization {users: [{user: a}]}\naccounts { A { users: [{user: a}] } }",
            'Duplicate user "a" detected',
        ),
        (
            "authorization {user: a, pass: b}\naccounts { A { users: [{user: c}] } }",
            "Can not have a single user/pass and accounts",
        ),
        (
            "authorization {token: a}\naccounts { A { users: [{user: c}] } }",
            "Can not have a token and accounts",
        ),
        (
            "authorization {users: [{nkey: " + USER_KEY + ", password: x}]}",
            "nkey users do not take usernames or passwords",
        ),
        ("authorization {users: [{nkey: U123}]}", "not a valid public nkey for a user"),
        ("authorization {users: [{password: x}]}", "a user entry requires a user"),
        ("authorization {users: {user: a}}", "expected an array of users"),
        ("authorization {users: [a]}", "expected a user as a map"),
        ("authorization {permissions: [a]}", "expected a map of permissions"),
        ("authorization {permissions { pub: 'a b' }}", "is not a valid subject"),
        ("authorization {permissions { sub: 'a b c' }}", "is not a valid subject"),
        ("authorization {permissions { sub: 'a b..c' }}", "is not a valid queue"),
        ("authorization {permissions { pub: { alow: a } }}", 'unknown field "alow"'),
        ("authorization {permissions { allow_responses: 1 }}", "a boolean or a map"),
        ("authorization {users: [{user: a, clients: [x]}]}", 'unknown connection type "X"'),
        ("accounts { $G {} }", '"$G" is a Reserved Account'),
        ("accounts: [A, A]", "Duplicate Account Entry: A"),
        ("accounts { A: 1 }", 'expected a map for account "A"'),
        ("accounts { A { nkey: x } }", "not a valid public nkey for an account"),
        ("accounts { A { limits { max_x: 1 } } }", 'unknown field "max_x"'),
        ("no_auth_user: x", "users/nkeys are not defined"),
        ("authorization {users: [{user: a}]}, no_auth_user: x", "not present as user or nkey"),
        ("system_account: X", 'system account "X" is not among the accounts'),
    ],
)
def test_refusals(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problems(tmp_path, text)


DERIVED = 'derived "$JS.{}.API.>" is not a valid subject'


@pytest.mark.feature("1.099", "9.004")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(
            (f'jetstream {{ domain: "{name}" }}', "may not contain ., * or >")
            for name in ("a.b", "*", "a>")
        ),
        *(
            (f'jetstream {{ domain: "{name}" }}', DERIVED.format(name))
            for name in ("a b", ".a", "a.")
        ),
        (
            "jetstream: true, accounts { S { jetstream: enabled } }, system_account: S",
            "Not allowed to enable JetStream on the system account",
        ),
    ],
)
def test_jetstream_has_one_word_as_domain_and_no_system_account(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert expected in problems(tmp_path, text)


@pytest.mark.feature("3-082")
def test_a_high_timeout_warns(tmp_path: Path) -> None:
    loaded = read_file(write(tmp_path, "authorization { timeout: 1m }"), {})
    assert "is high" in str(loaded.warnings[0])


def test_public_keys() -> None:
    assert is_public_key(USER_KEY, 20 << 3)
    assert not is_public_key(USER_KEY[:-1] + "A", 20 << 3)
    assert not is_public_key("é", 0)
    assert is_public_key(ACCOUNT_KEY, 0)
