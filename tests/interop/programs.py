"""Builds the client programs under build/interop and runs them; nothing is built twice."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE.parent.parent / "build" / "interop"
BUILD_SECONDS = 900


@dataclass(frozen=True)
class Program:
    """A folder beside this file: the tools it needs, how it is built, how it is run there."""

    name: str
    tools: tuple[str, ...]
    build: tuple[str, ...]
    run: tuple[str, ...]
    # The same of its second program, on streams; nothing: it has none.
    streams: tuple[str, ...] = ()


PROGRAMS = [
    Program("python", (), (), (sys.executable, "checks.py"), (sys.executable, "streams.py")),
    Program(
        "go",
        ("go",),
        ("go", "build", "-mod=mod", "-o", "checks", "."),
        ("./checks",),
        ("./checks", "streams"),
    ),
    Program(
        "js",
        ("node", "npm"),
        ("npm", "install", "--no-audit", "--no-fund", "--no-package-lock"),
        ("node", "checks.js"),
        ("node", "streams.js"),
    ),
    Program(
        "rust",
        ("cargo",),
        ("cargo", "build"),
        ("target/debug/martlet-interop",),
        ("target/debug/martlet-interop", "streams"),
    ),
    Program(
        "java",
        ("java", "mvn"),
        ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"),
        ("java", "-cp", "lib/*", "Checks.java"),
        ("java", "-cp", "lib/*", "Streams.java"),
    ),
    Program(
        "cli",
        ("go",),
        ("go", "build", "-mod=mod", "-o", "nats", "github.com/nats-io/natscli/nats"),
        ("./nats",),
    ),
]


class MissingToolError(Exception):
    """A tool that this machine does not have."""


def digest(folder: Path) -> str:
    parts = [p.relative_to(folder).as_posix().encode() + p.read_bytes() for p in files(folder)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def built(program: Program) -> Path:
    """The folder to run the program in; builds it when its sources are not those built last."""
    for tool in program.tools:
        if shutil.which(tool) is None:
            raise MissingToolError(f"{tool} is not installed")
    source, target = HERE / program.name, BUILT / program.name
    stamp = target / "built"
    wanted = digest(source)
    if stamp.exists() and stamp.read_text() == wanted:
        return target
    shutil.copytree(source, target, dirs_exist_ok=True)
    if program.build:
        done = subprocess.run(
            program.build, cwd=target, capture_output=True, text=True, timeout=BUILD_SECONDS
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program.name} does not build:\n{done.stdout}{done.stderr}")
    stamp.write_text(wanted)
    return target


def environment(**servers: str) -> dict[str, str]:
    return {**os.environ, **{f"INTEROP_{name.upper()}": value for name, value in servers.items()}}


if __name__ == "__main__":
    for each in PROGRAMS:
        try:
            print(f"{each.name}: {built(each)}", flush=True)
        except MissingToolError as missing:
            print(f"{each.name}: skipped, {missing}", flush=True)
