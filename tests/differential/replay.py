"""Plays one script against one server and returns what each connection was told."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

from .script import Script, ScriptError, Step, expand
from .servers import Server

WAIT_SECONDS = 30.0
PLAIN_CONNECT = '{"verbose":false,"pedantic":false}'
PING_LINE = re.compile(rb"(?i)ping[^\n]*\n")
# What is random, or tells which program it is: checked for its shape, then masked.
INFO_SHAPES = {
    "server_id": r"N[A-Z2-7]{55}",
    "xkey": r"X[A-Z2-7]{55}",
    "nonce": r"[A-Za-z0-9_-]{15}",
    "version": r"\d+\.\d+\.\d+(-[\w.]+)?",
    "go": r".+",
    "client_id": r"\d+",
}
# `api_lvl` tells how much of JetStream there is, `martlet` our own version.
INFO_UNCOMPARED = {"git_commit", "api_lvl", "martlet"}


def masked_info(line: bytes, port: int) -> str:
    text = line.decode()
    if not text.endswith(" \r\n"):
        return f"INFO without the blank before its line end: {text[-6:]!r}"
    info: dict[str, Any] = json.loads(text[5:])
    for key, shape in INFO_SHAPES.items():
        if key in info and key != "server_id" and re.fullmatch(shape, str(info[key])):
            info[key] = f"<{key}:{type(info[key]).__name__}>"
    server_id = info.get("server_id", "")
    if re.fullmatch(INFO_SHAPES["server_id"], server_id):
        info = {key: "<server_id>" if value == server_id else value for key, value in info.items()}
    if info.get("port") == port:
        info["port"] = "<port>"
    kept = {key: value for key, value in info.items() if key not in INFO_UNCOMPARED}
    return "INFO " + json.dumps(kept, sort_keys=True).replace(f":{port}", ":<port>")


def protocol_units(stream: bytes) -> Iterator[bytes]:
    """One unit for each line, a MSG or HMSG with its payload; a torn tail is a unit as well."""
    at = 0
    while at < len(stream):
        end = stream.find(b"\n", at) + 1
        if not end:
            yield stream[at:]
            return
        line = stream[at:end]
        if line.startswith((b"MSG ", b"HMSG ")):
            end += int(line.split()[-1]) + 2
        yield stream[at:end]
        at = end


class Peer:
    """One named connection of a script."""

    def __init__(self, port: int, options: str) -> None:
        self.port = port
        self.first_info = b""
        self.stream = b""
        self.pings_sent = 0
        self.shows_info = False
        self.unordered = False
        self.quiet = False
        self.at_end = False
        self.socket = socket.socket()
        for option in options.split():
            name, _, value = option.partition("=")
            if name != "rcvbuf":
                raise ScriptError(f"unknown open option {name}")
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(value))
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.wait(lambda: b"\n" in self.stream, "an INFO line")
        self.first_info, _, self.stream = self.stream.partition(b"\n")
        self.first_info += b"\n"

    def receive(self, timeout_seconds: float) -> bool:
        """Takes in what comes; False at the end of the stream."""
        self.socket.settimeout(max(timeout_seconds, 0.001))
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        self.stream += data
        self.at_end = not data
        return not self.at_end

    def wait(self, done: Any, what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not done():
            if self.at_end:
                raise ScriptError(f"closed while waiting for {what}; got {self.stream[-200:]!r}")
            try:
                self.receive(deadline - time.monotonic())
            except TimeoutError:
                raise ScriptError(f"no {what} in time; got {self.stream[-200:]!r}") from None

    def write(self, data: bytes) -> None:
        """A server that has closed already is noticed where the script asks for it."""
        self.pings_sent += len(PING_LINE.findall(data))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def units(self) -> list[bytes]:
        return list(protocol_units(self.stream))

    def sync(self) -> None:
        self.write(b"PING\r\n")
        self.wait(lambda: self.units().count(b"PONG\r\n") >= self.pings_sent, "PONG")

    def settle(self) -> None:
        """A barrier for a connection that may have been closed for what it said."""
        try:
            if not self.at_end:
                self.sync()
        except ScriptError:
            if not self.at_end:
                raise

    def until_closed(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        try:
            while self.receive(deadline - time.monotonic()):
                pass
        except TimeoutError:
            raise ScriptError(f"not closed in time; got {self.stream[-200:]!r}") from None

    def finish(self) -> None:
        """Reads everything that is on its way: what follows the first PONG precedes the second."""
        if not self.at_end:
            self.sync()
            if self.pings_sent == 1:
                self.sync()
        self.socket.close()

    def told(self) -> list[str]:
        shown = [masked_info(self.first_info, self.port)] if self.shows_info else []
        for unit in self.units():
            if unit.startswith(b"INFO "):
                shown.append(masked_info(unit, self.port))
            elif unit != b"PING\r\n":
                shown.append(repr(unit)[2:-1])
        return sorted(shown) if self.unordered else shown


def play(script: Script, server: Server) -> dict[str, list[str]]:
    """Connection name (or the joined names of a total) to the units it received."""
    peers: dict[str, Peer] = {}
    try:
        for step in script.steps:
            try:
                take(step, peers, server)
            except ScriptError as error:
                raise ScriptError(
                    f"{script.name}.txt:{step.line}: {step.who} {step.verb}: {error}"
                ) from error
        for name, peer in peers.items():
            try:
                peer.finish()
            except ScriptError as error:
                raise ScriptError(f"{script.name}.txt: last barrier of {name}: {error}") from error
    finally:
        for peer in peers.values():
            peer.socket.close()
    told = {name: peer.told() for name, peer in peers.items() if not peer.quiet}
    for names in script.totals:
        told["+".join(names)] = sorted(unit for name in names for unit in told.pop(name))
    return told


def take(step: Step, peers: dict[str, Peer], server: Server) -> None:
    if step.verb == "signal":
        server.signal(step.text)
        return
    if step.verb == "reload":
        server.reload(step.text)
        return
    if step.verb == "open":
        peers[step.who] = Peer(server.port, step.text)
        return
    if step.verb == "client":
        peers[step.who] = Peer(server.port, "")
        peers[step.who].write(b"CONNECT " + expand(step.text or PLAIN_CONNECT) + b"\r\n")
        return
    peer = peers[step.who]
    if step.verb == "send":
        peer.write(expand(step.text) + b"\r\n")
    elif step.verb == "raw":
        peer.write(expand(step.text))
    elif step.verb == "pieces":
        size, _, text = step.text.partition(" ")
        data = expand(text)
        peer.pings_sent += len(PING_LINE.findall(data))
        for at in range(0, len(data), int(size)):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.socket.sendall(data[at : at + int(size)])
    elif step.verb == "burst":
        times, _, text = step.text.partition(" ")
        for _ in range(int(times)):
            peer.write(expand(text))
    elif step.verb == "pass":
        time.sleep(int(step.text) / 1000)
    elif step.verb == "await":
        peer.wait(lambda: expand(step.text) in peer.stream, step.text)
    elif step.verb == "sync":
        peer.sync()
    elif step.verb == "settle":
        peer.settle()
    elif step.verb == "closed":
        peer.until_closed()
    elif step.verb == "close":
        peer.at_end = True
        peer.socket.close()
    elif step.verb == "info":
        peer.shows_info = True
    elif step.verb == "unordered":
        peer.unordered = True
    elif step.verb == "quiet":
        peer.quiet = True
