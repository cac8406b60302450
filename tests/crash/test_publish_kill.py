"""kill -9 under a load of publishes: every acknowledged message is there, in order, once.

The publisher keeps many publishes in flight, each with an id and its own number as payload. Only
what was acknowledged counts; more may be there, because an ack can be lost with the process.
"""

from __future__ import annotations

import json
import random
import re
import signal
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.differential.jetstream.client import Client
from tests.e2e.server import MARTLET, ServerProcess, wait_for

ACK = re.compile(rb'MSG _R\.k\.(\d+) 1 \d+\r\n\{"stream":"K","seq":(\d+)(,"duplicate": true)?\}')
BURST = 500
CONFIG = {"name": "K", "subjects": ["k"], "storage": "file", "allow_direct": True}


def burst(first: int) -> bytes:
    lines = []
    for number in range(first, first + BURST):
        block = b"NATS/1.0\r\nNats-Msg-Id: id-%d\r\n\r\n" % number
        payload = b"%d" % number
        sizes = (len(block), len(block) + len(payload))
        lines.append(b"HPUB k _R.k.%d %d %d\r\n%b%b\r\n" % (number, *sizes, block, payload))
    return b"".join(lines)


class Load:
    """Publishes from its own thread until the connection breaks; remembers what was acked."""

    def __init__(self, port: int, first: int) -> None:
        self.client = Client(port)
        self.first = self.sent = first
        self.acked: dict[int, int] = {}
        self.unread = b""
        self.over = False
        self.sender = threading.Thread(target=self.send)
        self.receiver = threading.Thread(target=self.receive)
        self.sender.start()
        self.receiver.start()

    def send(self) -> None:
        try:
            while True:
                wait_for(self.has_room, "room")
                self.client._socket.sendall(burst(self.sent))
                self.sent += BURST
        except OSError:
            return

    def receive(self) -> None:
        try:
            while data := self.client._socket.recv(1 << 16):
                self.unread += data
                end = 0
                for found in ACK.finditer(self.unread):
                    self.acked[int(found[1])] = int(found[2])
                    end = found.end()
                self.unread = self.unread[end:]
        except OSError:
            return
        finally:
            self.over = True

    def has_room(self) -> bool:
        return self.over or self.sent - self.first - len(self.acked) < 8 * BURST

    def join(self) -> None:
        self.sender.join()
        self.receiver.join()
        self.client.close()


def read_all(client: Client) -> dict[int, int]:
    """Sequence to the number in its payload, for every message of the stream."""
    found: dict[int, int] = {}
    state = json.loads(client.request("$JS.API.STREAM.INFO.K"))["state"]
    seq = max(state["first_seq"], 1)
    while seq <= state["last_seq"]:
        body = json.dumps({"seq": seq, "batch": 1000}).encode()
        client.publish("$JS.API.DIRECT.GET.K", body, reply="_R.all")
        while True:
            message = client.next_message()
            assert message is not None
            _, block, payload = message
            if block.startswith(b"NATS/1.0 204 EOB"):
                break
            at = int(re.search(rb"Nats-Sequence: (\d+)", block)[1])  # type: ignore[index]
            found[at] = int(payload)
        seq = max(found) + 1
    return found


def check(found: dict[int, int], acked: dict[int, int]) -> None:
    assert sorted(found) == list(range(1, len(found) + 1)), "sequences without holes"
    numbers = [found[seq] for seq in sorted(found)]
    assert numbers == sorted(set(numbers)), "in order, each once"
    missing = {n: seq for n, seq in acked.items() if found.get(seq) != n}
    assert not missing, f"{len(missing)} of {len(acked)} acknowledged messages are gone"


@pytest.mark.slow
@pytest.mark.feature("3.005", "3.008", "3.011")
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    rng = random.Random(3)
    acked: dict[int, int] = {}
    first = 1
    for life in range(4):
        with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
            with closing(Client(server.port)) as client:
                if life == 0:
                    client.request("$JS.API.STREAM.CREATE.K", json.dumps(CONFIG).encode())
                check(read_all(client), acked)
                again(client, acked, rng)
            load = Load(server.port, first)
            enough = rng.randrange(2_000, 20_000)
            wait_for(lambda at=load, n=enough: len(at.acked) >= n, "acks", 60.0)  # type: ignore[misc]
            server.signal(signal.SIGKILL)
            server.process.wait()
            load.join()
            acked.update(load.acked)
            first = load.sent
    assert len(acked) > 8_000
    with ServerProcess(tmp_path, "-js", "-sd", str(tmp_path), command=MARTLET) as server:
        with closing(Client(server.port)) as client:
            check(read_all(client), acked)
            again(client, acked, rng)


def again(client: Client, acked: dict[int, int], rng: random.Random) -> None:
    """The duplicate window holds over the restart."""
    for number in rng.sample(sorted(acked), min(50, len(acked))):
        headers = b"NATS/1.0\r\nNats-Msg-Id: id-%d\r\n\r\n" % number
        answer = json.loads(client.request("k", b"again", headers))
        assert answer == {"stream": "K", "seq": acked[number], "duplicate": True}
