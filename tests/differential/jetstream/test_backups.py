"""Snapshots of one server restored by the other: the genuine server reads ours, we read its."""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.differential.jetstream.client import Client, keep_streams_folder
from tests.differential.jetstream.play import API, clean, masked, parsed
from tests.e2e.server import MARTLET, NATS_SERVER, ServerProcess, wait_for

CONFIG = "feature_flags { preview_consumers: true }\n"
DELIVER = "_R.snapshot"
Servers = dict[str, Client]
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    one, other = (tmp_path_factory.mktemp(name) for name in ("genuine", "martlet"))
    with (
        ServerProcess(one, "-js", "-sd", str(one), command=NATS_SERVER) as genuine,
        ServerProcess(other, "-js", "-sd", str(other), config=CONFIG, command=MARTLET) as ours,
    ):
        keep_streams_folder(one)
        clients = {
            name: Client(server.port, home=server.directory)
            for name, server in (("genuine", genuine), ("ours", ours))
        }
        yield clients
        for client in clients.values():
            client.close()


def ask(client: Client, subject: str, body: Any = b"") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parsed(client.request(API + subject, data))


def received(client: Client) -> tuple[bytes, list[tuple[str, int]], bytes]:
    """The archive, the ends of the ack subjects with the chunks' sizes, and the last status."""
    archive, chunks = b"", []
    while True:
        line = client._file.readline()
        words = line.split()
        if words[0] == b"PING":
            client._send(b"PONG\r\n")
            continue
        data = client._file.read(int(words[-1]) + 2)[:-2]
        if words[1] != DELIVER.encode():
            continue
        block = int(words[-2]) if words[0] == b"HMSG" else 0
        if len(data) == block:
            return archive, chunks, data
        archive += data
        has_reply = len(words) == (5 if block == 0 else 6)
        reply = words[3].decode() if has_reply else ""
        chunks.append((".".join(reply.split(".")[-2:]), len(data) if reply else -1))
        if reply:
            assert reply.startswith("$JS.SNAPSHOT.ACK.S.")
            client.publish(reply, b"")


def snapshot(client: Client, **asked: Any) -> tuple[Any, bytes, Any, bytes]:
    answer = ask(client, "STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER, **asked})
    return answer, *received(client)


def restore(client: Client, config: Any, archive: bytes, size: int = 128 * 1024) -> Any:
    answer = ask(client, "STREAM.RESTORE.S", {"config": config, "state": {}})
    if "error" in answer:
        return answer
    for at in range(0, len(archive), size):
        found = client.request(answer["deliver_subject"], archive[at : at + size])
        assert found == b"", found
    return parsed(client.request(answer["deliver_subject"], b""))


def messages(client: Client) -> list[Any]:
    state = ask(client, "STREAM.INFO.S")["state"]
    found = []
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        message = ask(client, "STREAM.MSG.GET.S", {"seq": seq}).get("message")
        if message is not None:
            parts = [b64decode(message.get(key, "")) for key in ("hdrs", "data")]
            found.append((seq, message["subject"], message["time"], *parts))
    return found


def fill(client: Client, **more: Any) -> None:
    """The same at both, but for times; payloads that shrink and others that do not."""
    clean(client)
    rng = random.Random(7)
    config = {"name": "S", "subjects": ["s.>"], "allow_msg_ttl": True, **more}
    answer = ask(client, "STREAM.CREATE.S", config)
    assert "error" not in answer, answer
    for seq in range(1, 401):
        payload = rng.randbytes(500) if seq % 3 == 0 else b"the same again " * (seq % 70)
        block = b"NATS/1.0\r\nMine: %d\r\n\r\n" % seq if seq % 4 == 0 else b""
        if seq % 50 == 0:
            block = b"NATS/1.0\r\nNats-TTL: 1000s\r\n\r\n"
        client.publish(f"s.{seq % 5}.{seq % 3}", payload, block)
    wait_for(lambda: ask(client, "STREAM.INFO.S")["state"]["last_seq"] == 400, "all is stored")
    ask(client, "STREAM.PURGE.S", {"seq": 5})
    for seq in (77, 78, 300, 400):
        ask(client, "STREAM.MSG.DELETE.S", {"seq": seq})
    for config in (
        {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "s.1.>"},
        {"durable_name": "D", "ack_policy": "all", "deliver_policy": "new"},
        {"name": "E", "ack_policy": "none", "inactive_threshold": 600_000_000_000},
    ):
        name = config.get("durable_name") or config["name"]
        body = {"stream_name": "S", "config": config}
        tail = f".{config['filter_subject']}" if "filter_subject" in config else ""
        answer = ask(client, f"CONSUMER.CREATE.S.{name}{tail}", body)
        assert "error" not in answer, answer


def consumers(client: Client) -> Any:
    """What is told of them, but for the time and where the new ones begin counting."""
    return [masked(ask(client, f"CONSUMER.INFO.S.{name}")) for name in ("C", "D", "E")]


@pytest.mark.feature("1.039", "8.001", "8.007", "8.009", "8.012", "8.013")
@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("maker", ["genuine", "ours"])
def test_either_restores_what_the_other_made(servers: Servers, maker: str, storage: str) -> None:
    fill(servers[maker], storage=storage)
    before, state = messages(servers[maker]), ask(servers[maker], "STREAM.INFO.S")["state"]
    answer, archive, _, _ = snapshot(servers[maker])
    told = {}
    for name, client in servers.items():
        clean(client)
        restored = restore(client, answer["config"], archive)
        assert "error" not in restored, restored
        # The last message was deleted: its time is lost.
        assert restored["state"] | {"last_ts": ""} == state | {"last_ts": ""}
        assert messages(client) == before
        told[name] = [masked(restored), consumers(client)]
        assert parsed(client.request("s.x", b"after"))["seq"] == 401
    assert told["ours"] == told["genuine"]


@pytest.mark.feature("8.001", "8.002", "8.003", "8.004", "1.090")
@pytest.mark.parametrize(
    "asked",
    [{}, {"chunk_size": 1}, {"chunk_size": 2048, "window_size": 1}, {"no_consumers": True},
     {"chunk_size": 5000, "jsck": True}],
)  # fmt: skip
def test_chunks_and_events_are_the_same(servers: Servers, asked: Any) -> None:
    told = {}
    for name, client in servers.items():
        fill(client)
        client.subscribe("$JS.EVENT.ADVISORY.STREAM.>", 5)
        answer, archive, chunks, status = snapshot(client, **asked)
        # How well it is compressed decides on their number.
        shapes = [(end.split(".")[0], size) for end, size in chunks if size >= 0]
        assert len(shapes) > 3 or not asked.get("chunk_size")
        config = answer["config"]
        clean(client)
        restored = restore(client, config, archive)
        told[name] = [
            masked(answer),
            shapes[:3],
            chunks[0][0] if shapes else "",
            chunks[-1][1],
            status,
            restored["state"]["consumer_count"],
        ]
        client.unsubscribe(5)
    assert told["ours"] == told["genuine"]


REFUSED = [
    ("SNAPSHOT.S", b""),
    ("SNAPSHOT.S", b"x"),
    ("SNAPSHOT.S", {}),
    ("SNAPSHOT.S", {"deliver_subject": ""}),
    ("SNAPSHOT.S", {"deliver_subject": "a.*"}),
    ("SNAPSHOT.S", {"deliver_subject": "a..b"}),
    ("SNAPSHOT.NOT", {"deliver_subject": "a"}),
    ("SNAPSHOT.NOT", b""),
    ("RESTORE.S", b""),
    ("RESTORE.S", b"x"),
    ("RESTORE.S", {"config": {"name": "S"}}),
    ("RESTORE.S", {"config": {"name": "T"}}),
    ("RESTORE.S", {}),
    ("RESTORE.T", {"config": {"name": "T", "max_msgs_per_subject": -5, "subjects": ["a b"]}}),
    ("RESTORE.T", {"config": {"name": "T", "retention": "no"}}),
    ("RESTORE.T", {"config": {"name": "T", "num_replicas": 9}}),
    ("RESTORE.T", {"config": {"name": "T"}, "state": {"bytes": "many"}}),
    ("RESTORE.T", {"config": {"name": "T"}, "unknown": 1}),
    ("RESTORE.T", {"config": {"name": "T"}, "state": {"first_seq": -1}}),
]


@pytest.mark.feature("8.001", "8.012", "1.016")
@pytest.mark.parametrize(("subject", "body"), REFUSED)
def test_requests_are_refused_in_the_same_words(servers: Servers, subject: str, body: Any) -> None:
    told = {}
    for name, client in servers.items():
        clean(client)
        ask(client, "STREAM.CREATE.S", {"name": "S"})
        told[name] = masked(ask(client, f"STREAM.{subject}", body))
    assert "error" in told["genuine"]
    assert told["ours"] == told["genuine"]
