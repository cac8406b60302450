"""A load of publishes, many in flight, each with an id and its own number as payload."""

from __future__ import annotations

import re
import threading

from tests.differential.jetstream.client import Client
from tests.e2e.server import wait_for

ACK = re.compile(rb'MSG _R\.k\.(\d+) 1 \d+\r\n\{"stream":"K","seq":(\d+)(,"duplicate": true)?\}')
BURST = 500


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
