from collections.abc import Iterator

from server.jetstream.pull import PullRequest

class Waiting:
    reply: bytes
    request: PullRequest
    messages: int
    size: int
    no_wait: bool
    received_ns: int
    expires_ns: int
    heartbeat_ns: int
    next_heartbeat_ns: int
    delivered: int
    priority: int
    def __init__(self, reply: bytes, request: PullRequest, now_ns: int) -> None: ...

class WaitingQueue:
    most: int
    by_priority: bool
    count: int
    def __init__(self, most: int, by_priority: bool = False) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Waiting]: ...
