"""YAML: the same keys, the same values, the same positions."""

from pathlib import Path

import pytest

from config.errors import ConfigError
from config.load import load, read_file
from tests.unit.config_files import write


def test_the_same_options_as_in_the_nats_grammar(tmp_path: Path) -> None:
    nats = write(
        tmp_path,
        """
        port: 5, max_payload: 2MB, debug: on, ping_interval: "20s", P: x
        authorization { users: [ {user: a, password: "1234", permissions: {publish: "b.>"} } ] }
        server_tags: [a, $P]
        """,
    )
    yaml = write(
        tmp_path,
        """
P: x
port: 5
max_payload: 2MB
debug: on
ping_interval: 20s
authorization:
  users:
    - user: a
      password: "1234"
      permissions: {publish: b.>}
server_tags: [a, $P]
""",
        "f.yaml",
    )
    first, second = read_file(nats, {}), read_file(yaml, {})
    assert first.digest == second.digest
    assert {**first.draft, "config_file": ""} == {**second.draft, "config_file": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port: x\n", 'f:1:0: expected an integer from -1 to 65535 for "port", got a text "x"'),
        ("a:\n", "f:1:2: expected a value"),
        ("tls:\n  bogus: 1\n", 'f:2:3: unknown field "bogus"'),
        ("- a\n", "f:1:0: expected keys and values"),
        ("port: [1\n", "f:2:1: not YAML"),
        ("[a]: 1\n", "f:1:0: a key must be a text"),
        ("host: $NOPE\n", "f:1:6: variable reference for 'NOPE' on line 1 can not be found"),
        ("authorization: {user: a, password: 0123}\n", "put the value in quotes"),
        ("port: !!python/object:os.x {}\n", "f:1:0: expected an integer"),
    ],
)
def test_problems(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text, "f.yml")
    with pytest.raises(ConfigError) as caught:
        load(path, {}, {})
    assert expected in str(caught.value).replace(path, "f")


def test_maps_are_merged_below_the_keys_beside_them(tmp_path: Path) -> None:
    text = """
accounts:
  A: &a
    limits: &limits {max_connections: 3, max_payload: 10}
  B:
    <<: *a
  C:
    limits: {max_payload: 20, <<: *limits}
  D:
    limits:
      <<: [{max_connections: 7}, *limits]
      max_payload: 30
"""
    accounts = load(write(tmp_path, text, "f.yaml"), {}, {})[0].accounts
    limits = [(account.max_connections, account.max_payload_bytes) for account in accounts]
    assert limits == [(3, 10), (3, 10), (3, 20), (7, 30)]


@pytest.mark.parametrize("merged", ["5", "[5]", "text"])
def test_only_maps_are_merged(tmp_path: Path, merged: str) -> None:
    path = write(tmp_path, f"tls:\n  <<: {merged}\n", "f.yaml")
    with pytest.raises(ConfigError, match=r"f.yaml:2:.*<< takes a map or a list of maps"):
        read_file(path, {})


def test_a_map_that_is_merged_into_itself_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "tls: &tls\n  <<: *tls\n", "f.yaml")
    with pytest.raises(ConfigError, match="nested too deep"):
        read_file(path, {})


def test_a_bomb_of_aliases_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    path = write(tmp_path, "\n".join(lines), "f.yaml")
    with pytest.raises(ConfigError, match="too many values"):
        read_file(path, {})


def test_includes_in_both_directions(tmp_path: Path) -> None:
    write(tmp_path, "port: 5", "a.conf")
    write(tmp_path, "include: a.conf\nhost: h", "b.yaml")
    options = load(write(tmp_path, "include b.yaml"), {}, {})[0]
    assert (options.host, options.port) == ("h", 5)


def test_an_empty_file_warns(tmp_path: Path) -> None:
    assert read_file(write(tmp_path, "# x\n", "f.yaml"), {}).warnings
