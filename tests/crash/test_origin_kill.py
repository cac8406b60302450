"""kill -9 while streams copy from each other: afterwards the copies are whole, nothing comes twice.

K is published to; M mirrors it; T has it twice by filter; U sources T, and is emptied now and then,
so that only the kept positions tell how far it was.
"""

from __future__ import annotations

import json
import random
import re
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.crash.load import Load
from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess, wait_for

SOURCE = re.compile(rb"Nats-Stream-Source: (\S+) (\d+) ")
STREAMS: tuple[dict[str, Any], ...] = (
    {"name": "K", "subjects": ["k", "l"]},
    {"name": "M", "mirror": {"name": "K"}},
    {
        "name": "T",
        "sources": [
            {"name": "K", "filter_subject": "k"},
            {"name": "K", "subject_transforms": [{"src": "l", "dest": "t.l"}]},
        ],
    },
    {"name": "U", "sources": [{"name": "T"}]},
)
LIVES = 4


def state(client: Client, name: str) -> dict[str, Any]:
    answer = json.loads(client.request(f"$JS.API.STREAM.INFO.{name}"))
    found: dict[str, Any] = answer["state"]
    return found


def read_all(client: Client, name: str, first: int = 1) -> list[tuple[int, int, bytes]]:
    """Sequence, the origin's sequence (0: none told) and payload of every message."""
    found: list[tuple[int, int, bytes]] = []
    last, seq = state(client, name)["last_seq"], first
    while seq <= last:
        body = json.dumps({"seq": seq, "batch": 1000}).encode()
        client.publish(f"$JS.API.DIRECT.GET.{name}", body, reply="_R.all")
        while True:
            message = client.next_message()
            assert message is not None
            _, block, payload = message
            if not block.startswith(b"NATS/1.0\r\n"):
                break
            at = int(re.search(rb"Nats-Sequence: (\d+)", block)[1])  # type: ignore[index]
            mark = SOURCE.search(block)
            found.append((at, int(mark[2]) if mark else 0, payload))
            seq = at + 1
        if block.startswith(b"NATS/1.0 404"):
            break
    return found


def caught_up(client: Client) -> bool:
    last = state(client, "K")["last_seq"]
    return (
        state(client, "M")["last_seq"] == last
        and state(client, "T")["last_seq"] == last
        and state(client, "U")["last_seq"] == last
    )


def check(client: Client) -> None:
    wait_for(lambda: caught_up(client), "all copies are whole", 60.0)
    original = read_all(client, "K")
    assert read_all(client, "M") == original
    sourced = read_all(client, "T")
    assert sorted(mark for _, mark, _ in sourced) == [seq for seq, _, _ in original]
    by_seq = {seq: payload for seq, _, payload in original}
    assert all(by_seq[mark] == payload for _, mark, payload in sourced)
    again = read_all(client, "U")
    assert [mark for _, mark, _ in again] == [seq for seq, _, _ in again]


@pytest.mark.slow
@pytest.mark.feature("7.007", "7.011", "7.012")
def test_copies_go_on_after_kill_9_without_gaps_or_duplicates(tmp_path: Path) -> None:
    rng = random.Random(5)
    first = 1
    for life in range(LIVES + 1):
        with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
            with closing(Client(server.port)) as client:
                if life == 0:
                    for config in STREAMS:
                        body = json.dumps({**config, "allow_direct": True}).encode()
                        client.request(f"$JS.API.STREAM.CREATE.{config['name']}", body)
                client.request("l", b"l")
                check(client)
                if life % 2:
                    client.request("$JS.API.STREAM.PURGE.U")
            if life == LIVES:
                break
            load = Load(server.port, first)
            enough = rng.randrange(1_000, 6_000)
            wait_for(lambda at=load, n=enough: len(at.acked) >= n, "acks", 60.0)  # type: ignore[misc]
            time.sleep(rng.random() / 20)  # where in its work it is hit
            server.signal(signal.SIGKILL)
            server.process.wait()
            load.join()
            first = load.sent
    assert first > LIVES * 1_000


@pytest.mark.slow
@pytest.mark.feature("7.011", "7.012")
def test_an_emptied_target_goes_on_after_kill_9(tmp_path: Path) -> None:
    """Nothing that was copied is left: only the kept positions know."""
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        with closing(Client(server.port)) as client:
            for config in STREAMS:
                body = json.dumps({**config, "allow_direct": True}).encode()
                client.request(f"$JS.API.STREAM.CREATE.{config['name']}", body)
            for _ in range(5):
                client.request("k", b"k")
            wait_for(lambda: caught_up(client), "all copies are whole")
            for name in ("T", "U"):
                client.request(f"$JS.API.STREAM.PURGE.{name}")
        server.signal(signal.SIGKILL)
        server.process.wait()
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        with closing(Client(server.port)) as client:
            client.request("k", b"new")
            wait_for(lambda: caught_up(client), "the new message is everywhere")
            for name in ("T", "U"):
                assert read_all(client, name) == [(6, 6, b"new")]
