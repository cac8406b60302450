"""Many connections, each with a stream of its own, are heard in the same rounds of the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess, wait_for

STREAMS = 48
ROUNDS = 30
API = "$JS.API.STREAM"


def ask(operator: Client, subject: str, body: bytes = b"") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(operator.request(f"{API}.{subject}", body))
    return answer


def creation(number: int) -> bytes:
    kind = "file" if number % 2 else "memory"
    return json.dumps({"name": f"S{number}", "subjects": [f"s.{number}"], "storage": kind}).encode()


def test_each_stream_has_what_its_publisher_said(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        publishers = [Client(server.port) for _ in range(STREAMS)]
        operator = Client(server.port)
        for number in range(STREAMS):
            assert "error" not in ask(operator, f"CREATE.S{number}", creation(number))
        for turn in range(ROUNDS):
            if turn == ROUNDS // 2:
                # What their publishers' last messages led to is gone.
                for number in range(0, STREAMS, 3):
                    assert ask(operator, f"DELETE.S{number}")["success"]
                for number in range(1, STREAMS, 3):
                    assert ask(operator, f"PURGE.S{number}")["success"]
            for number, publisher in enumerate(publishers):
                publisher.publish(f"s.{number}", b"%d" % turn)
        for number, publisher in enumerate(publishers):
            publisher.flush()
            publisher.close()
            if number % 3 == 0:
                assert ask(operator, f"INFO.S{number}")["error"]["err_code"] == 10059
                continue
            wait_for(
                lambda n=number: ask(operator, f"INFO.S{n}")["state"]["last_seq"] == ROUNDS,
                f"all of stream {number} durable",
            )
            last = ask(operator, f"MSG.GET.S{number}", b'{"seq":%d}' % ROUNDS)
            assert last["message"]["subject"] == f"s.{number}"
        operator.close()
