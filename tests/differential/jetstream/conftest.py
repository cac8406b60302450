"""Both servers, once for each module, and a connection to each, anew for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.differential.jetstream.client import Client, keep_streams_folder
from tests.e2e.server import MARTLET, NATS_SERVER, ServerProcess


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Of the genuine server and of ours; MARTLET_FLOWS_PEER=1 puts a second genuine one there."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("genuine", "martlet"))
    command = NATS_SERVER if os.environ.get("MARTLET_FLOWS_PEER") else MARTLET
    with (
        ServerProcess(one, "-js", "-sd", str(one), command=NATS_SERVER) as genuine,
        ServerProcess(other, "-js", "-sd", str(other), command=command) as ours,
    ):
        keep_streams_folder(one)
        yield genuine, ours


@pytest.fixture
def pair(both: tuple[ServerProcess, ServerProcess]) -> Iterator[tuple[Client, Client]]:
    genuine, ours = (Client(server.port, home=server.directory) for server in both)
    yield genuine, ours
    genuine.close()
    ours.close()
