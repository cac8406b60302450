"""Many streams, everything at once, a busy machine: every request is answered."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess, die_with_parent

API = "$JS.API.STREAM"
STREAMS = 12
ROUNDS = int(os.environ.get("MARTLET_STRESS_ROUNDS", "60"))
SPIN = "import time\nend = time.time() + 60\nwhile time.time() < end: pass"


@pytest.fixture
def busy_machine() -> Iterator[None]:
    hogs = [
        subprocess.Popen([sys.executable, "-c", SPIN], preexec_fn=die_with_parent)
        for _ in range(os.cpu_count() or 2)
    ]
    yield
    for hog in hogs:
        hog.kill()
        hog.wait()


def one_request(rng: random.Random, stream: int) -> tuple[str, bytes]:
    kind = rng.random()
    if kind < 0.6:
        return f"s.{stream}.{rng.randint(0, 5)}", rng.randbytes(rng.choice((1, 200, 9000)))
    if kind < 0.85:
        erase = rng.choice(("true", "false"))
        body = b'{"seq":%d,"no_erase":%s}' % (rng.randint(1, 60), erase.encode())
        return f"{API}.MSG.DELETE.S{stream}", body
    if kind < 0.93:
        return f"{API}.PURGE.S{stream}", b'{"keep":%d}' % rng.randint(0, 30)
    return f"{API}.INFO.S{stream}", b""


def one_life(rng: random.Random, stream: int) -> tuple[str, bytes]:
    """A publish whose stream goes in the same moment has nobody to answer it: these come alone."""
    if rng.random() < 0.5:
        return f"{API}.DELETE.S{stream}", b""
    return f"{API}.CREATE.S{stream}", creation(stream)


def creation(stream: int) -> bytes:
    return b'{"name":"S%d","subjects":["s.%d.*"],"storage":"file"}' % (stream, stream)


@pytest.mark.parametrize("sync", ["always", "10s"])
def test_every_request_is_answered(tmp_path: Path, busy_machine: None, sync: str) -> None:
    config = f"jetstream {{ store_dir: {str(tmp_path / 'js')!r}, sync_interval: {sync} }}\n"
    rng = random.Random(5)
    with ServerProcess(tmp_path, config=config, command=MARTLET) as server:
        clients = [Client(server.port) for _ in range(4)]
        for stream in range(STREAMS):
            clients[0].request(f"{API}.CREATE.S{stream}", creation(stream))
        asked = 0
        for number in range(ROUNDS):
            ask = one_life if number % 5 == 4 else one_request
            waiting: dict[Client, set[str]] = {client: set() for client in clients}
            for client in clients:
                for _ in range(rng.randint(1, 12)):
                    asked += 1
                    subject, body = ask(rng, rng.randrange(STREAMS))
                    client.publish(subject, body, reply=f"_R.{asked}")
                    waiting[client].add(f"_R.{asked}")
            # Then silence: an answer that only a later request would bring never comes.
            for client, replies in waiting.items():
                while replies:
                    message = client.next_message()
                    if message is not None:
                        replies.discard(message[0])
        for client in clients:
            client.close()
    assert asked > ROUNDS
