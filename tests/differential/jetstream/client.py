"""A plain client for API requests: one socket, one answer for one request."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.e2e.server import wait_for

ANSWER_S = 30.0


def keep_streams_folder(home: Path) -> None:
    """The genuine server removes the folder behind a deletion when nothing is left in it, perhaps
    just when the next stream makes its own there."""
    folder = home / "jetstream" / "$G" / "streams"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kept").touch()


def until_removed(home: Path) -> None:
    """The genuine server answers a deletion before the stream's files are gone. Who deletes the
    stream's successor meanwhile leaves its files behind, and the next stream of the name has them.
    """
    wait_for(lambda: not any(home.glob("jetstream/*/streams/.*")), "a deleted stream's files gone")


class Client:
    """`home` is the directory of a server whose streams are deleted and made again."""

    def __init__(
        self, port: int, user: str = "", password: str = "", home: Path | None = None
    ) -> None:
        self._home = home
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._socket.settimeout(ANSWER_S)
        self._file = self._socket.makefile("rb")
        self.info = json.loads(self._file.readline().removeprefix(b"INFO "))
        options: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
        }
        if user:
            options |= {"user": user, "pass": password}
        self._send(b"CONNECT " + json.dumps(options).encode() + b"\r\nSUB _R.> 1\r\n")
        self._asked = 0
        self._unasked: list[tuple[str, bytes, bytes]] = []
        self.flush()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def next_message(self) -> tuple[str, bytes, bytes] | None:
        """Subject, headers and payload of the next message; None at a PONG."""
        while True:
            line = self._file.readline()
            if not line or line.startswith(b"-ERR"):
                raise AssertionError(f"the server said {line!r}")
            words = line.split()
            if words[0] == b"PONG":
                return None
            if words[0] == b"PING":
                self._send(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                data = self._file.read(int(words[-1]) + 2)[:-2]
                size = int(words[-2]) if words[0] == b"HMSG" else 0
                return words[1].decode(), data[:size], data[size:]

    def flush(self) -> list[tuple[str, bytes, bytes]]:
        """Everything that comes before the answer to a PING."""
        self._send(b"PING\r\n")
        return list(iter(self.next_message, None))

    def subscribe(self, subject: str, number: int) -> None:
        self._send(f"SUB {subject} {number}\r\n".encode())

    def unsubscribe(self, number: int) -> None:
        self._send(f"UNSUB {number}\r\n".encode())

    def settled(self) -> list[tuple[str, bytes, bytes]]:
        """What came unasked: before an answer and before several PONGs after it."""
        found, self._unasked = self._unasked, []
        for _ in range(5):
            found += self.flush()
        return found

    def publish(self, subject: str, payload: bytes, headers: bytes = b"", reply: str = "") -> None:
        target = f"{subject} {reply}".strip()
        if headers:
            head = f"HPUB {target} {len(headers)} {len(headers) + len(payload)}\r\n"
        else:
            head = f"PUB {target} {len(payload)}\r\n"
        self._send(head.encode() + headers + payload + b"\r\n")

    def request(self, subject: str, payload: bytes = b"", headers: bytes = b"") -> bytes:
        """The payload of the answer, or its header block when it has one."""
        self._asked += 1
        reply = f"_R.{self._asked}"
        self.publish(subject, payload, headers, reply)
        while True:
            message = self.next_message()
            if message is not None and message[0] == reply:
                if self._home is not None and ".STREAM.DELETE." in subject:
                    until_removed(self._home)
                return message[1] or message[2]
            if message is not None:
                self._unasked.append(message)

    def exchange(
        self, subject: str, payload: bytes, headers: bytes, reply: str, answers: int
    ) -> list[tuple[str, bytes, bytes]]:
        """The next `answers` messages after a publish; with 0 what comes before a barrier.

        Their subjects are told without the number that makes each request's own.
        """
        self._asked += 1
        mine = f"_R.{self._asked}."
        self.publish(subject, payload, headers, mine + reply)
        found: list[tuple[str, bytes, bytes]] = []
        if answers == 0:
            self._send(b"PING\r\n")
        while answers == 0 or len(found) < answers:
            message = self.next_message()
            if message is None:
                break
            if message[0].startswith((mine, "_R.copy.")):
                found.append((message[0].removeprefix(mine), *message[1:]))
        return found
