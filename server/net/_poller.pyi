from collections.abc import Callable

from server.core._broker import Broker
from server.core._client import Client
from server.core._peer import Preface

class Poller:
    """The epoll set of plain TCP clients.

    Register with the loop: `loop.add_reader(poller.fileno(), poller.run)`. `run` never blocks
    and bounds its time, so that the loop's other work gets its share; it ends with
    `broker.turn.run()`.
    """

    accept_errors: int
    descriptors_max: int
    def __init__(self, broker: Broker, read_buffer_bytes: int = ...) -> None: ...
    def fileno(self) -> int: ...
    def listen(
        self,
        fd: int,
        on_accept: Callable[[int, str, int], None] | None = None,
        preface: Preface | None = None,
        preface_ns: int = 0,
    ) -> None:
        """Accept from a listening socket (non-blocking; the caller keeps it open and owns it).

        Without `on_accept` each connection becomes a `Client`. With it, the new non-blocking
        descriptor, the peer's IP and port go to the callable, which then owns them (TLS).
        `preface` reads what may come ahead of the protocol within `preface_ns`.
        """
    def unlisten(self, fd: int) -> None:
        """Stop accepting; the socket stays open and the caller's."""
    def adopt(self, fd: int, ip: str, port: int) -> Client:
        """Serve a connected non-blocking descriptor (now the poller's) as a plain client."""
    def run(self) -> None:
        """Accept, read, parse, route and end the turn; bounded, never blocking."""
    def look_again(self) -> None:
        """`run`, in a lively exchange, without waiting for input."""
    def close(self) -> None:
        """Close every plain connection and the epoll set."""
