"""Answers and events hold against the public JSON schemas that the `nats` command brings."""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import ServerProcess

pytestmark = [pytest.mark.interop, pytest.mark.feature("1.096")]
STREAM = {"name": "S", "subjects": ["s.>"], "allow_atomic": True, "allow_direct": True}
CONSUMER = {
    "stream_name": "S",
    "config": {"name": "C", "durable_name": "C", "ack_policy": "explicit"},
}
REQUESTS: list[tuple[str, object]] = [
    ("INFO", ""),
    ("STREAM.CREATE.S", STREAM),
    ("STREAM.UPDATE.S", STREAM | {"description": "changed"}),
    ("STREAM.INFO.S", {"subjects_filter": ">"}),
    ("STREAM.NAMES", ""),
    ("STREAM.LIST", ""),
    ("STREAM.MSG.GET.S", {"seq": 1}),
    ("STREAM.MSG.DELETE.S", {"seq": 1}),
    ("CONSUMER.CREATE.S.C", CONSUMER),
    ("CONSUMER.INFO.S.C", ""),
    ("CONSUMER.NAMES.S", ""),
    ("CONSUMER.LIST.S", ""),
    ("CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"}),
    ("CONSUMER.DELETE.S.C", ""),
    ("STREAM.PURGE.S", ""),
    ("STREAM.LEADER.STEPDOWN.S", ""),
    ("STREAM.DELETE.S", ""),
    ("STREAM.INFO.S", ""),
]


def told(server: ServerProcess) -> list[dict[str, object]]:
    """One answer of each kind and the events about them."""
    found = []
    with closing(Client(server.port)) as client, closing(Client(server.port)) as listener:
        listener.subscribe("$JS.EVENT.>", 7)
        listener.flush()
        for subject, body in REQUESTS:
            text = json.dumps(body).encode() if body else b""
            found.append(json.loads(client.request("$JS.API." + subject, text)))
            if subject.startswith("STREAM.CREATE"):
                ack = json.loads(client.request("s.a", b"hello"))
                found.append(ack | {"type": "io.nats.jetstream.api.v1.pub_ack_response"})
        heard = listener.settled()
        found += [json.loads(text) for subject, _, text in heard if subject.startswith("$JS.EVENT")]
    return found


def test_what_is_told_holds_against_its_schema(
    tmp_path: Path, nats_command: Path, nats_environment: dict[str, str]
) -> None:
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path)) as server:
        answers = told(server)
    kinds = {str(answer["type"]) for answer in answers}
    assert {kind.rsplit(".", 1)[1] for kind in kinds} >= {
        "api_audit",
        "stream_action",
        "pub_ack_response",
    }
    for answer in answers:
        kind = str(answer["type"])
        file = tmp_path / "answer.json"
        file.write_text(json.dumps(answer))
        done = subprocess.run(
            [nats_command, "schema", "validate", kind, file],
            capture_output=True,
            text=True,
            env=nats_environment,
            timeout=20,
            check=False,
        )
        assert done.returncode == 0, f"{kind}: {done.stdout}{done.stderr}\n{answer}"
