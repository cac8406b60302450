"""The steps of the Dockerfile, without a container engine: sdist, wheels, environment, serve.

To compile everything once more takes minutes: `make image` does. Here the wheel is made of the
sdist's files and of the modules that are compiled already; that the sdist has every file that a
compiler reads is looked at instead.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.duration import parse_duration
from config.load import load
from tests.e2e.server import run, wait_for

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
NOBODY = 65534
ROOMS = ("config", "pyspark_jetstream", "server", "storage")
READ_BY_A_BUILD = {".h", ".pxd", ".py", ".pyi", ".pyx"}


def copy_of_context(target: Path) -> Path:
    """What COPY . takes: the allowed entries of .dockerignore, without what it excludes."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    excluded = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    for line in lines:
        if not line.startswith("!"):
            continue
        source = ROOT / line[1:]
        if source.is_dir():
            ignored = shutil.ignore_patterns(*excluded)
            shutil.copytree(source, target / source.name, ignore=ignored)
        else:
            target.mkdir(exist_ok=True)
            shutil.copy(source, target)
    return target


def run_step(*command: str, cwd: Path) -> None:
    """With nothing of this checkout in the environment. -O0: the steps matter here, not speed."""
    kept = ("HOME", "PIP_", "SSL_", "HTTP", "http", "REQUESTS_")
    env = {key: value for key, value in os.environ.items() if key.startswith(kept)}
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**env, "PATH": path, "CFLAGS": "-O0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that another user can enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory(prefix="martlet-image-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def wheels_compiled_anew(place: Path, source: Path) -> None:
    run_step("sh", str(source / "deploy" / "build-wheels.sh"), "src", "wheels", cwd=place)


def wheels_of_what_is_compiled(place: Path, source: Path) -> None:
    words = "from setuptools.build_meta import build_sdist; build_sdist('../sdist')"
    (place / "sdist").mkdir()
    run_step(sys.executable, "-c", words, cwd=source)
    with tarfile.open(next((place / "sdist").glob("*.tar.gz"))) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (tree,) = (place / "unpacked").iterdir()
    wanted = {p.relative_to(source) for p in source.rglob("*") if p.suffix in READ_BY_A_BUILD}
    there = {p.relative_to(tree) for p in tree.rglob("*")}
    assert not wanted - there - {p for p in wanted if p.parts[0] == "deploy"}
    built = f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    (tree / "build").mkdir()
    generated = [p.with_suffix(".c") for room in ROOMS for p in (ROOT / room).rglob("*.pyx")]
    for path in [*generated, *(ROOT / "build").glob("*.c")]:
        shutil.copyfile(path, tree / path.relative_to(ROOT))
    # The newest of all, so that nothing is compiled again.
    compiled = [p for room in ROOMS for p in (ROOT / room).rglob("*.so")]
    for path in [*compiled, *ROOT.glob("*.so")]:
        (tree / built / path.parent.relative_to(ROOT)).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, tree / built / path.relative_to(ROOT))
    words = "-q --disable-pip-version-check --no-build-isolation --wheel-dir wheels"
    run_step(sys.executable, "-m", "pip", "wheel", *words.split(), str(tree), cwd=place)


COMPILED_ANEW = pytest.param(
    wheels_compiled_anew,
    marks=pytest.mark.skipif(not os.environ.get("MARTLET_IMAGE"), reason="`make image` runs this"),
)


@pytest.mark.slow
@pytest.mark.parametrize("make_wheels", [wheels_of_what_is_compiled, COMPILED_ANEW])
def test_installed_from_wheels_it_serves(
    open_place: Path, make_wheels: Callable[[Path, Path], None]
) -> None:
    source = copy_of_context(open_place / "src")
    wheels, target = open_place / "wheels", open_place / "martlet"
    make_wheels(open_place, source)
    run_step(
        "sh", str(source / "deploy" / "install-wheels.sh"), "wheels", "martlet", cwd=open_place
    )
    site = next(target.glob("lib/python*/site-packages"))
    ours = [p for room in ROOMS for p in (site / room).rglob("*")]
    assert [p for p in ours if p.suffix == ".so"]
    assert not [p for p in ours if p.suffix in {".pyx", ".pxd", ".c", ".h"}]
    assert not (target / "bin" / "pip").exists()
    shutil.rmtree(source)
    shutil.rmtree(wheels)
    serve_and_check(open_place, target)


def other_user(target: Path) -> dict[str, Any]:
    """Popen's arguments for nobody; none where we may not change, or nobody may not run Python."""
    options: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    try:
        subprocess.run([target / "bin" / "python", "-c", "pass"], check=True, env={}, **options)
    except PermissionError:
        return {}
    return options


def serve_and_check(place: Path, target: Path) -> None:
    """As another user where that is possible; the health check says 0, and 1 after the end."""
    home = place / "data"
    home.mkdir()
    options = other_user(target)
    user = options.get("user", os.getuid())
    os.chown(home, user, -1)
    command = [str(target / "bin" / "martlet"), "-a", "127.0.0.1", "-p", "-1", "-m", "-1"]
    log = (place / "log").open("w+")
    with log, subprocess.Popen(command, cwd=home, stderr=log, env={}, **options) as process:
        try:
            client_port, http_port = ports(place / "log", process)
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert re.search(rf"Uid:\s+{user}\s", status)
            with socket.create_connection(("127.0.0.1", client_port), timeout=30) as client:
                client.sendall(b"CONNECT {}\r\nPING\r\n")
                answer = b""
                while b"PONG" not in answer:
                    answer += client.recv(4096)
            assert health(target, client_port, http_port) == 0
            assert health(target, client_port, closed_port()) == 0, "without monitoring"
        finally:
            process.terminate()
        assert process.wait(30) == 0
    assert health(target, client_port, http_port) == 1


def ports(log: Path, process: subprocess.Popen[bytes]) -> tuple[int, int]:

    def both() -> tuple[int, int] | None:
        text = log.read_text()
        assert process.poll() is None, text
        client = re.search(r"Listening for client connections on \S+:(\d+)", text)
        monitor = re.search(r"Starting http monitor on \S+:(\d+)", text)
        return (int(client[1]), int(monitor[1])) if client and monitor else None

    found: tuple[int, int] = wait_for(both, "both ports in the log", 60.0)
    return found


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def health(target: Path, client_port: int, http_port: int) -> int:
    env = {
        "MARTLET_HEALTH_CLIENT_PORT": str(client_port),
        "MARTLET_HEALTH_HTTP_PORT": str(http_port),
    }
    python = target / "bin" / "python"
    return subprocess.run(
        [python, DEPLOY / "healthcheck.py"], env=env, capture_output=True, timeout=60
    ).returncode


def test_the_dockerfile_runs_these_steps() -> None:
    text = (ROOT / "Dockerfile").read_text()
    build, run = text.split("FROM ${PYTHON_IMAGE}")[1:]
    assert "deploy/build-wheels.sh" in build
    assert "deploy/install-wheels.sh" in build
    assert "gcc" not in run
    assert "USER nats" in run
    for name in re.findall(r"deploy/([\w.-]+)", text):
        assert (DEPLOY / name).is_file(), name


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "martlet"),
        (["-js", "-sd", "/data"], "martlet -js -sd /data"),
        (["nats-server", "-DV"], "martlet -DV"),
        (["martlet", "--name", "a b"], "martlet --name a b"),
        (["echo", "other"], "other"),
    ],
)
def test_entrypoint_arguments(arguments: list[str], expected: str, tmp_path: Path) -> None:
    fake = tmp_path / "martlet"
    fake.write_text('#!/bin/sh\necho "martlet${*:+ $*}"\n')
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = ["sh", str(DEPLOY / "entrypoint.sh"), *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == expected + "\n", done.stderr


def test_a_container_is_not_killed_while_its_clients_move_on() -> None:
    options, _ = load(str(DEPLOY / "container.conf"), {})
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["martlet"]
    assert service["stop_signal"] == "SIGUSR2"
    patience_ns = parse_duration(service["stop_grace_period"])
    # The rest is for the stores to close.
    assert patience_ns >= options.lame_duck_duration_ns + 10_000_000_000


@pytest.mark.parametrize("name", ["container.conf", "martlet.conf"])
def test_sample_configurations_are_valid(name: str, tmp_path: Path) -> None:

    done = run("-t", "-c", str(DEPLOY / name))
    assert done.returncode == 0, done.stderr
