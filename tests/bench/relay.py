"""A broker of one subscription per subject that can be told to spoil messages."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class Relay:
    """Passes messages on. `spoil`: drop or repeat the third, alter all from the third, nothing."""

    def __init__(self, spoil: str) -> None:
        self.spoil = spoil
        self.passed = 0
        self.subscribers: dict[bytes, tuple[socket.socket, bytes]] = {}
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        # A generator that found a fault closes its connections with a reset.
        with suppress(OSError), client, client.makefile("rb") as reader:
            client.sendall(b'INFO {"server_id":"relay"}\r\n')
            for line in reader:
                self._obey(client, line, reader.read)

    def _obey(self, client: socket.socket, line: bytes, read: Callable[[int], bytes]) -> None:
        words = line.split()
        with self.lock:
            if words[0] == b"PING":
                client.sendall(b"PONG\r\n")
            elif words[0] == b"SUB":
                self.subscribers[words[1]] = (client, words[-1])
            elif words[0] == b"PUB":
                self._publish(words, read(int(words[-1]) + 2))

    def _publish(self, words: list[bytes], payload: bytes) -> None:
        wildcard = words[1].rpartition(b".")[0] + b".*"
        found = self.subscribers.get(words[1]) or self.subscribers.get(wildcard)
        if not found:
            return
        subscriber, sid = found
        reply = words[2] + b" " if len(words) == 4 else b""
        self.passed += 1
        if self.passed >= 3 and self.spoil == "alter":
            payload = b"?" + payload[1:]
        message = b"MSG %s %s %s%d\r\n%s" % (words[1], sid, reply, len(payload) - 2, payload)
        copies = {"drop": 0, "twice": 2}.get(self.spoil, 1) if self.passed == 3 else 1
        subscriber.sendall(message * copies)


@contextmanager
def relay(spoil: str) -> Iterator[Relay]:
    broker = Relay(spoil)
    thread = threading.Thread(target=broker.serve, daemon=True)
    thread.start()
    try:
        yield broker
    finally:
        broker.listener.shutdown(socket.SHUT_RDWR)
        broker.listener.close()
        thread.join()
