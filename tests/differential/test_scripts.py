"""Each script in `scripts/` gets the same answers from Martlet as from the genuine server."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from .replay import play
from .script import Script, ScriptError, expand, read_script
from .servers import Pool, Server

HERE = Path(__file__).parent
SCRIPTS = sorted((HERE / "scripts").glob("*.txt"))


def known_differences() -> dict[str, str]:
    """Script name to the reason why its answers are not equal yet."""
    lines = (HERE / "known_differences.txt").read_text().splitlines()
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {name: reason for name, _, reason in pairs}


KNOWN = known_differences()


def ordered_scripts() -> list[Script]:
    """Scripts of one configuration stand together, so that few servers run at a time."""
    scripts = [read_script(path) for path in SCRIPTS]
    return sorted(scripts, key=lambda script: (script.server_key, script.name))


def answers(kind: str, script: Script, pool: Pool) -> dict[str, list[str]]:
    if not script.fresh:
        return play(script, pool.get(kind, script))
    server = Server(kind, script)
    try:
        return play(script, server)
    finally:
        server.stop()


def difference(genuine: dict[str, list[str]], ours: dict[str, list[str]]) -> str:
    """Empty when both told the same."""
    lines: list[str] = []
    for name in genuine:
        lines += difflib.unified_diff(
            genuine[name], ours[name], f"{name}: nats-server", f"{name}: martlet", lineterm="", n=1
        )
    return "\n".join(lines)


@pytest.mark.peer
@pytest.mark.parametrize("script", ordered_scripts(), ids=lambda script: script.name)
def test_script(script: Script, pool: Pool) -> None:
    genuine = answers("nats-server", script, pool)
    try:
        found = difference(genuine, answers("martlet", script, pool))
    except (ScriptError, OSError) as error:
        found = f"martlet does not carry the script through: {error}"
    if script.name in KNOWN:
        assert found, f"{script.name} is equal now: take it off known_differences.txt"
        pytest.xfail(f"{KNOWN[script.name]}\n{found}")
    assert not found, found


def test_known_differences_name_scripts() -> None:
    assert set(KNOWN) <= {path.stem for path in SCRIPTS}


def test_expand() -> None:
    assert expand(r"a\tb\x00${xy*3}\\") == b"a\tb\0xyxyxy\\"
    with pytest.raises(ScriptError, match="unknown escape"):
        expand(r"\q")


def test_difference_shows_what_was_told() -> None:
    assert difference({"a": ["PONG"]}, {"a": ["PONG"]}) == ""
    assert "-PONG" in difference({"a": ["PONG"]}, {"a": []})
