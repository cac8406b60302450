from server.core._broker import Broker

class Connection:
    broker: Broker
    fd: int
    closed: bool
    reason: str
    start_wall_ns: int
    stop_wall_ns: int
    stalls: int
    pending_bytes: int
    def on_slow(self, text: str) -> None: ...
    def on_mark(self) -> None: ...

def live_connections() -> int:
    """Connection objects alive, for leak tests."""
