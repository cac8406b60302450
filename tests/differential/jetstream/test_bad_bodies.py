"""Bodies that are no JSON, of the wrong types, too long, too deep: both servers say the same.

Nothing is made of them, and the connection goes on.
"""

from __future__ import annotations

import json

import pytest

from tests.differential.jetstream.bad_bodies import PLAIN, bodies
from tests.differential.jetstream.client import Client
from tests.differential.jetstream.play import API, TIME, Json, clean, masked, parsed

Pair = tuple[Client, Client]
pytestmark = pytest.mark.peer
STREAM = {"name": "S", "subjects": ["a.*"], "storage": "memory", "allow_direct": True}


def answers(client: Client, subject: str, asked: dict[str, bytes]) -> dict[str, Json]:
    """By body: the answer, and which streams and consumers there are then."""
    found: dict[str, Json] = {}
    for name, body in asked.items():
        prepare(client)
        said = told(client.request(API + subject, body))
        streams = json.loads(client.request(API + "STREAM.NAMES"))["streams"]
        consumers = json.loads(client.request(API + "CONSUMER.NAMES.S")).get("consumers")
        found[name] = (said, streams, len(consumers or ()))
    clean(client)
    return found


def told(answer: bytes) -> Json:
    """Masked, and without what is made up or the time of a message's header."""
    said = masked(parsed(answer))
    if isinstance(said, str):
        return TIME.sub("<time>", said)
    if "deliver_subject" in said:
        said["deliver_subject"] = said["deliver_subject"].rpartition(".")[0]
    return said


def prepare(client: Client) -> None:
    """A stream with a message and two consumers, as new."""
    clean(client)
    client.request(API + "STREAM.CREATE.S", json.dumps(STREAM).encode())
    client.request("a.1", b"x")
    for name in ("P", "Q"):
        config = {"durable_name": name, "ack_policy": "explicit"}
        body = json.dumps({"stream_name": "S", "config": config}).encode()
        client.request(API + f"CONSUMER.DURABLE.CREATE.S.{name}", body)


@pytest.mark.feature("1.001", "1.011", "1.012", "11.002")
@pytest.mark.parametrize("subject", PLAIN)
def test_bodies_that_no_request_should_have(pair: Pair, subject: str) -> None:
    asked = bodies(PLAIN[subject])
    genuine, ours = (answers(client, subject, asked) for client in pair)
    assert ours == genuine
