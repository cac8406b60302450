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

# What happens to messages is told by events; each consumer is there for one of them.
OF_MESSAGES: list[tuple[str, dict[str, object], bytes]] = [
    ("acked", {"sample_freq": "100"}, b"+ACK"),
    ("refused", {}, b"-NAK"),
    ("ended", {}, b"+TERM because"),
    ("late", {"max_deliver": 1, "ack_wait": 50_000_000}, b""),
]
PINNED = {"priority_groups": ["g"], "priority_policy": "pinned_client"}
EVENTS = {
    "api_audit",
    "consumer_ack",
    "consumer_action",
    "consumer_group_pinned",
    "consumer_group_unpinned",
    "nak",
    "max_deliver",
    "restore_complete",
    "restore_create",
    "snapshot_complete",
    "snapshot_create",
    "stream_action",
    "stream_batch_abandoned",
    "terminated",
}

# The genuine server's own events do not hold against the public schemas of these either: numbers
# that should be texts, a server's name that no event has, blocks of a file store.
OTHERWISE_THERE = {
    "consumer_group_pinned",
    "consumer_group_unpinned",
    "nak",
    "snapshot_create",
    "terminated",
}


def ask(client: Client, subject: str, body: object = "") -> dict[str, object]:
    text = json.dumps(body).encode() if body else b""
    answer: dict[str, object] = json.loads(client.request("$JS.API." + subject, text))
    return answer


def consume(client: Client, name: str, config: dict[str, object], answer: bytes) -> None:
    """A consumer that delivers the stream's only message, and what is said to it."""
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    made = ask(client, f"CONSUMER.CREATE.M.{name}", {"stream_name": "M", "config": config})
    assert "error" not in made, made
    body = json.dumps({"batch": 1, "group": "g"} if "priority_groups" in config else {"batch": 1})
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.M.{name}", body.encode(), reply="_R.pulled")
    while (client.next_message() or ("",))[0] != "m":
        pass  # what else comes is not what was asked for
    if answer:
        client.publish(f"$JS.ACK.M.{name}.1.1.1.0.0", answer)


def saved_and_restored(client: Client) -> list[dict[str, object]]:
    """A snapshot of the stream M becomes the stream again."""
    saved = ask(client, "STREAM.SNAPSHOT.M", {"deliver_subject": "_R.saved"})
    chunks: list[bytes] = []
    while not chunks or chunks[-1]:
        chunks += [payload for subject, _, payload in client.settled() if subject == "_R.saved"]
    deleted = ask(client, "STREAM.DELETE.M")
    body = {"config": saved["config"], "state": saved["state"]}
    begun = ask(client, "STREAM.RESTORE.M", body)
    for chunk in chunks[:-1]:
        client.request(str(begun["deliver_subject"]), chunk)
    done = json.loads(client.request(str(begun["deliver_subject"])))
    return [saved, deleted, begun, done]


def told_of_messages(client: Client, listener: Client) -> list[dict[str, object]]:
    """Answers of the rarer kinds, and one event of each kind."""
    ask(client, "STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "allow_atomic": True})
    client.request("m", b"hello")
    for name, config, answer in OF_MESSAGES:
        consume(client, name, config, answer)
    consume(client, "pinned", PINNED, b"")
    for number in (1, 3):
        block = f"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: {number}\r\n\r\n".encode()
        client.request("m", b"x", block)
    found = [
        ask(client, "CONSUMER.UNPIN.M.pinned", {"group": "g"}),
        ask(client, "CONSUMER.RESET.M.acked", {"seq": 1}),
        *saved_and_restored(client),
    ]
    missing = set(EVENTS)
    while missing:
        message = listener.next_message()
        if message is not None and message[0].startswith("$JS.EVENT"):
            found.append(json.loads(message[2]))
            missing.discard(str(found[-1]["type"]).rsplit(".", 1)[1])
    return found


def told(server: ServerProcess) -> list[dict[str, object]]:
    """One answer of each kind and the events about them."""
    found = []
    with closing(Client(server.port)) as client, closing(Client(server.port)) as listener:
        listener.subscribe("$JS.EVENT.>", 7)
        listener.flush()
        for subject, body in REQUESTS:
            found.append(ask(client, subject, body))
            if subject.startswith("STREAM.CREATE"):
                ack = json.loads(client.request("s.a", b"hello"))
                found.append(ack | {"type": "io.nats.jetstream.api.v1.pub_ack_response"})
        heard = listener.settled()
        found += [json.loads(text) for subject, _, text in heard if subject.startswith("$JS.EVENT")]
        found += told_of_messages(client, listener)
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
        if kind.rsplit(".", 1)[1] in OTHERWISE_THERE:
            continue
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
