from collections.abc import Callable
from typing import TypeAlias

from server.core._subscriber import Subscriber
from server.core.connect import ConnectOptions

# From the bytes so far to how many of them it has, and the peer's address (an empty one: as it is);
# None: more are needed. ValueError: it is not good, and the text says why.
Preface: TypeAlias = Callable[[bytes], tuple[int, str, int] | None]

class Peer(Subscriber):
    cid: int
    kind: str
    type: str
    ip: str
    port: int
    server_port: int
    options: ConnectOptions
    user: str
    user_label: str
    issuer_key: str
    auth: object | None
    tls: object | None
    rtt_ns: int
    label: str
    name: str
    lang: str
    version: str
    last_activity_wall_ns: int
    preface: Preface | None
    def expect_preface(self, preface: Preface, within_ns: int) -> None:
        """Something may come ahead of the protocol and tell who the peer is."""
    def refuse_preface(self, why: str) -> None: ...
    def introduce(self, ip: str, port: int) -> None:
        """The peer is that one; whoever made the connection only hands on its bytes."""
