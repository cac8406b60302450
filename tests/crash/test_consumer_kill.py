"""kill -9 while a consumer fetches and acknowledges: answered acks are kept, nothing is lost.

Every message is acknowledged with a reply; who got the answer knows that the acknowledgement is on
stable storage. After the restart none of those may come again, and all others must.
"""

from __future__ import annotations

import json
import re
import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess

MESSAGES = 400
DELIVERY = re.compile(rb"MSG k 7 (\$JS\.ACK\.K\.C\.\d+\.\d+\.\d+\.\d+\.\d+) \d+\r\n(\d+)\r\n")
ANSWER = re.compile(rb"MSG _R\.(\d+) 1 0\r\n")


def receive(client: Client) -> bytes:
    data: bytes = client._socket.recv(1 << 16)
    if not data:
        raise ConnectionError("the server is gone")
    return data


def prepare(client: Client, retention: str) -> None:
    for subject, body in (
        ("STREAM.CREATE.K", {"name": "K", "subjects": ["k"], "retention": retention}),
        (
            "CONSUMER.CREATE.K.C",
            {
                "stream_name": "K",
                "config": {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 5000},
            },
        ),
    ):
        answer = json.loads(client.request(f"$JS.API.{subject}", json.dumps(body).encode()))
        assert "error" not in answer, answer
    for number in range(MESSAGES):
        client.request("k", b"%d" % number)


def fetch(port: int, batch: int, stop_after: int, server: ServerProcess | None) -> set[int]:
    """The numbers whose acks were answered; the server is killed after `stop_after` of them."""
    answered: set[int] = set()
    unread = b""
    with closing(Client(port)) as client:
        client._socket.sendall(b"SUB d 7\r\n")
        request = b'{"batch":%d}' % batch
        client._socket.sendall(
            b"PUB $JS.API.CONSUMER.MSG.NEXT.K.C d %d\r\n%b\r\n" % (len(request), request)
        )
        try:
            while len(answered) < stop_after:
                unread += receive(client)
                end = 0
                for found in DELIVERY.finditer(unread):
                    end = found.end()
                    client._socket.sendall(b"PUB %b _R.%b 0\r\n\r\n" % (found[1], found[2]))
                for found in ANSWER.finditer(unread):
                    end = max(end, found.end())
                    answered.add(int(found[1]))
                unread = unread[end:]
            if server is not None:
                server.process.send_signal(signal.SIGKILL)
                while True:
                    unread += receive(client)
                    answered |= {int(found[1]) for found in ANSWER.finditer(unread)}
        except OSError:
            assert server is not None
    return answered


@pytest.mark.feature("5.081", "1.077", "2.056", "2.058")
@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_answered_acks_outlive_a_kill_and_no_message_is_lost(
    tmp_path: Path, retention: str
) -> None:
    flags = ("-js", "-sd", str(tmp_path))
    answered: set[int] = set()
    with ServerProcess(tmp_path, *flags, command=MARTLET) as server:
        with closing(Client(server.port)) as client:
            prepare(client, retention)
        answered |= fetch(server.port, 120, 100, server)
        server.process.wait()
    with ServerProcess(tmp_path, *flags, command=MARTLET) as server:
        with closing(Client(server.port)) as client:
            info = json.loads(client.request("$JS.API.CONSUMER.INFO.K.C"))
            left = info["num_pending"] + info["num_ack_pending"]
            assert MESSAGES - 120 <= left <= MESSAGES - len(answered)
            wait_ns = 500_000_000
            config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": wait_ns}
            config["max_ack_pending"] = 5000
            body = {"stream_name": "K", "config": config}
            client.request("$JS.API.CONSUMER.CREATE.K.C", json.dumps(body).encode())
        # What is not acknowledged in time comes twice: a batch of exactly what is left would lack
        # its last messages.
        again = fetch(server.port, 10 * MESSAGES, left, None)
        assert not again & answered, "an answered acknowledgement was forgotten"
        assert again | answered >= set(range(120, MESSAGES))
        with closing(Client(server.port)) as client:
            info = json.loads(client.request("$JS.API.CONSUMER.INFO.K.C"))
            assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)
            state = json.loads(client.request("$JS.API.STREAM.INFO.K"))["state"]
            assert state["messages"] == (MESSAGES if retention == "limits" else 0)
