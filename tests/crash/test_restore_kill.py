"""kill -9 while a stream is restored: it is there whole, or not at all."""

from __future__ import annotations

import json
import random
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from server.jetstream.archive import END, MAGIC, Entry, encoded
from server.wire.s2 import compressed
from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess

MESSAGES = 2000
CHUNK = 4096
CONFIG: dict[str, Any] = {"name": "S", "subjects": ["s.>"], "storage": "file"}


def archive() -> bytes:
    rng = random.Random(2)
    state = {"first_seq": 1, "last_seq": MESSAGES, "bytes": 0, "consumer_count": 0}
    entries = [Entry(b"state.json", 1, 0, b"", json.dumps(state).encode())]
    entries += [Entry(b"s.a", seq, seq, b"", rng.randbytes(100)) for seq in range(1, MESSAGES + 1)]
    return compressed(MAGIC + b"".join(map(encoded, entries)) + END)


def state_of(client: Client) -> Any:
    answer = json.loads(client.request("$JS.API.STREAM.INFO.S"))
    return answer.get("state") or answer["error"]["err_code"]


@pytest.mark.slow
@pytest.mark.feature("8.012", "8.013")
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99, 1.0])
def test_a_restore_is_whole_or_has_left_nothing(tmp_path: Path, share: float) -> None:
    data = archive()
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        with closing(Client(server.port)) as client:
            body = json.dumps({"config": CONFIG}).encode()
            answer = json.loads(client.request("$JS.API.STREAM.RESTORE.S", body))
            for at in range(0, int(len(data) * share), CHUNK):
                client.request(answer["deliver_subject"], data[at : at + CHUNK])
            if share == 1.0:
                told = json.loads(client.request(answer["deliver_subject"], b""))
                assert told["state"]["messages"] == MESSAGES
            else:
                assert state_of(client) == 10059
            server.signal(signal.SIGKILL)
            server.process.wait()
    for _ in range(2):
        with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
            with closing(Client(server.port)) as client:
                found = state_of(client)
                assert (found if share < 1 else found["messages"]) == (
                    10059 if share < 1 else MESSAGES
                )
                names = json.loads(client.request("$JS.API.STREAM.NAMES"))["streams"]
                assert names == (["S"] if share == 1.0 else None)
