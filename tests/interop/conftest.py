"""The servers that the client programs meet. INTEROP_COMMAND names another server than ours."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import write_certificates
from tests.e2e.server import ServerProcess

from .programs import PROGRAMS, MissingToolError, built, environment

LOCKED = """
max_payload: 1024
authorization { users: [
  {user: app, password: secret, permissions: {publish: "app.>", subscribe: ["app.>", "_INBOX.>"]}}
] }
"""


class Servers:
    """The URLs of the servers, and the one that can be restarted on its port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.command = os.environ.get("INTEROP_COMMAND", "")
        self.running: list[ServerProcess] = []
        self.ca, cert, key = write_certificates(directory)
        self.plain = self.start("plain").url
        self.locked = self.start("locked", config=LOCKED).url
        tls = self.start("tls", "--tls", f"--tlscert={cert}", f"--tlskey={key}")
        self.tls = f"tls://localhost:{tls.port}"
        self.restartable = self.start("restarted", port=free_port())
        self.restarted = self.restartable.url
        self.keeping = self.start("streams", *self._kept("streams"), port=free_port())
        self.streams = self.keeping.url

    def start(
        self, name: str, *flags: str, config: str | None = None, port: int = -1
    ) -> ServerProcess:
        home = self.directory / name
        home.mkdir(exist_ok=True)
        server = ServerProcess(
            home, "-a", "127.0.0.1", "-p", str(port), *flags, config=config, command=self.command
        )
        server.__enter__()
        self.running.append(server)
        return server

    def _kept(self, name: str) -> tuple[str, ...]:
        return "-js", "-sd", str(self.directory / name / "store")

    def restart_streams(self) -> None:
        """What was stored is there again, what was only in memory is not."""
        self.keeping.__exit__(None, None, None)
        self.running.remove(self.keeping)
        self.keeping = self.start("streams", *self._kept("streams"), port=self.keeping.port)

    def restart(self) -> None:
        self.restartable.__exit__(None, None, None)
        self.running.remove(self.restartable)
        self.restartable = self.start("restarted", port=self.restartable.port)

    def urls(self) -> dict[str, str]:
        return {
            "plain": self.plain,
            "locked": self.locked,
            "tls": self.tls,
            "restarted": self.restarted,
            "streams": self.streams,
            "ca": str(self.ca),
        }

    def stop(self) -> None:
        for server in self.running:
            server.__exit__(None, None, None)


def free_port() -> int:
    """A restart needs the same port twice, so here port -1 will not do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("interop"))
    yield servers
    servers.stop()


@pytest.fixture
def nats_command() -> Path:
    """The `nats` command, built from its module; without a Go toolchain there is none to run."""
    if not os.environ.get("MARTLET_INTEROP"):
        pytest.skip("`make interop` runs this")
    try:
        return built(next(p for p in PROGRAMS if p.name == "cli")) / "nats"
    except MissingToolError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def nats_environment(tmp_path: Path) -> dict[str, str]:
    """With nothing of the user's own configuration."""
    return environment() | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
