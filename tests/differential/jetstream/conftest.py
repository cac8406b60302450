"""Both servers, once for each module, and a connection to each, anew for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, NATS_SERVER, ServerProcess


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of the genuine server and of ours; MARTLET_FLOWS_PEER=1 puts a second genuine one there."""
    one, other = (tmp_path_factory.mktemp(name) for name in ("genuine", "martlet"))
    command = NATS_SERVER if os.environ.get("MARTLET_FLOWS_PEER") else MARTLET
    with (
        ServerProcess(one, "-js", "-sd", str(one), command=NATS_SERVER) as genuine,
        ServerProcess(other, "-js", "-sd", str(other), command=command) as ours,
    ):
        yield genuine.port, ours.port


@pytest.fixture
def pair(ports: tuple[int, int]) -> Iterator[tuple[Client, Client]]:
    clients = Client(ports[0]), Client(ports[1])
    yield clients
    for client in clients:
        client.close()
