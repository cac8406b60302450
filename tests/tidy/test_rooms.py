"""Who may import whom, and who may touch the clock, files, sockets, chance and the loop."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.sources import ROOMS, ROOT, modules_named, name_of, sources

# The table of ARCHITECTURE.md. A room may import itself and what stands here.
SHARED = ("server.clock", "server.version")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "config": (),
    "storage": (),
    "raft": (),
    "server.wire": (),
    "server.core": ("server.wire", *SHARED),
    "server.net": ("config", "server.core", "server.wire", *SHARED),
    "server.auth": ("config", "server.core", *SHARED),
    "server.jetstream": ("config", "server.core", "server.wire", "storage", *SHARED),
    "server.ops": ("config", "server.core", "server.net", *SHARED),
    "server.clock": (),
    "server.version": (),
}
# Files directly in server/ that are not named above wire the rooms together.
COMPOSES = (*ROOMS,)
ASYNC_ROOMS = ("server/net/", "server/ops/", "server/app.py", "server/main.py")

# Where each outside thing may be touched. Everything else takes it as an argument.
HOMES: dict[str, tuple[str, ...]] = {
    "asyncio": ("server/app.py", "server/main.py", "server/net/", "server/ops/"),
    "random": ("server/clock.py",),
    "secrets": ("server/clock.py",),
    "socket": ("server/app.py", "server/net/", "server/ops/syslog.py"),
    "time": ("server/clock.py", "server/ops/usage.py"),
    "open": (
        "config/parser.py",  # the configuration and what it includes
        "config/load.py",
        "config/tls.py",  # that certificates can be read is part of a configuration's check
        "server/app.py",
        "server/net/tls.py",
        "server/ops/",
        "storage/fs.py",
    ),
}
# Formatting a time that was given is no look at the clock.
TIME_WITHOUT_CLOCK = {"gmtime", "localtime", "strftime", "struct_time"}


def module_of(path: Path) -> str:
    return name_of(path).removesuffix(path.suffix).removesuffix("/__init__").replace("/", ".")


def room_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "server" else parts[0]


def within(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in allowed)


def wrong_arrows(path: Path) -> Iterator[str]:
    own = room_of(module_of(path))
    allowed = MAY_IMPORT.get(own, COMPOSES)
    for module in sorted(modules_named(path)):
        if within(module, ROOMS) and not within(module, (own, *allowed)):
            if module in ROOMS and any(name.startswith(module + ".") for name in allowed):
                continue  # `from config import limits` names `config` on the way
            yield (
                f"{name_of(path)} imports {module}, but {own} may only import "
                f"{', '.join(allowed) or 'nothing of ours'}: take it as an argument instead, "
                "or a Protocol that app.py satisfies"
            )


def test_arrows_of_import_never_point_back() -> None:
    wrong = [text for path in sources(".py", ".pyi", ".pyx", ".pxd") for text in wrong_arrows(path)]
    assert not wrong, "\n".join(wrong)


def test_the_table_is_that_of_architecture_md() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    listed = {
        room.strip("/").replace("/", "."): row
        for room, row in re.findall(r"^\| `((?:server/)?\w+/)` \|.*\| ([^|]+) \|$", text, re.M)
    }
    for room, row in listed.items():
        named = {name.replace("/", ".") for name in re.findall(r"`([\w/.]+)`", row)}
        known = set(MAY_IMPORT.get(room, ()))
        assert named <= known | {""}, f"ARCHITECTURE.md lets {room} import {named - known}"


def clock_looked_at(path: Path, tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name == "time" for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            return any(alias.name not in TIME_WITHOUT_CLOCK for alias in node.names)
    return False


def touched(path: Path) -> set[str]:
    """Which outside things a file touches."""
    if path.suffix == ".pyx":
        text = path.read_text()
        found = {name for name in HOMES if name in modules_named(path)}
        return found | ({"open"} if re.search(r"(?<![\w.])open\(", text) else set())
    tree = ast.parse(path.read_text())
    modules = modules_named(path) | {name.split(".")[0] for name in modules_named(path)}
    found = {name for name in HOMES if name in modules} - {"time"}
    if clock_looked_at(path, tree):
        found.add("time")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {"open"} & {node.func.id}
    return found


def test_outside_things_are_touched_at_home_only() -> None:
    wrong = [
        f"{name_of(path)} uses {thing}, whose home is {', '.join(HOMES[thing])}: "
        "take it as a constructor argument, so that the simulator can own it"
        for path in sources(".py", ".pyx")
        for thing in sorted(touched(path))
        if not name_of(path).startswith(HOMES[thing])
    ]
    assert not wrong, "\n".join(wrong)


def test_cores_are_synchronous() -> None:
    wrong = [
        f"{name_of(path)} has an `async def`: only {', '.join(ASYNC_ROOMS)} may wait"
        for path in sources(".py", ".pyx")
        if re.search(r"^\s*async def\b", path.read_text(), re.M)
        and not name_of(path).startswith(ASYNC_ROOMS)
    ]
    assert not wrong, "\n".join(wrong)


def test_this_notices_an_arrow_that_points_back(tmp_path: Path) -> None:
    core = ROOT / "server" / "core" / "_sublist.pyx"
    assert within("server.core._subs", ("server.core",))
    assert not within("server.corewise", ("server.core",))
    assert {"server.core._subs", "server.core._table"} <= modules_named(core)
    assert room_of("server.net._poller") == "server.net"
    file = tmp_path / "wrong.py"
    file.write_text("def f():\n    from server.app import App\n    open('x')\n    import random\n")
    assert "server.app" in modules_named(file)
    assert touched(file) == {"open", "random"}
