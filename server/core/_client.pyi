from collections.abc import Callable

from server.core._account import Account
from server.core._broker import Broker
from server.core._permissions import Permissions
from server.core._session import Session
from server.core._subscriber import SubInfo as SubInfo
from server.core.connect import ConnectOptions

class Client(Session):
    """One client connection, whatever carries its bytes.

    With a descriptor (made by the poller) input and output are C. With `write` (TLS, websocket,
    tests) bytes come in by `feed` and go out by `write(bytes)`; `close_transport` is called once
    when the client is closed, after the last `write`. Call `start` once to send INFO.
    """

    def __init__(
        self,
        broker: Broker,
        write: Callable[[bytes], object] | None = None,
        close_transport: Callable[[], object] | None = None,
        ip: str = "",
        port: int = 0,
        kind: str = "Client",
        type: str = "nats",
        pause_transport: Callable[[bool], object] | None = None,
        transport_pending: Callable[[], int] | None = None,
    ) -> None:
        """`pause_transport(True)` asks the carrier to stop reading (authentication under way,
        stalled producer), `False` to go on. Bytes fed meanwhile are kept, not lost.
        `transport_pending` says how many written bytes the carrier still holds; it counts for
        `max_pending` and the write deadline.
        """

    # who
    broker: Broker
    cid: int
    kind: str  # "Client", ...
    type: str  # "nats", "websocket", "mqtt"
    ip: str
    port: int
    server_port: int
    fd: int  # -1 with a transport or after the close
    options: ConnectOptions  # the defaults before CONNECT
    account: Account | None
    user: str
    user_label: str  # how the log names it (`user:ann`, `nkey:U...`, `token`); set before `accept`
    issuer_key: str  # who vouches for an nkey; "" for other users
    auth: object | None  # whatever `accept` was given for the auth room's use
    permissions: Permissions | None
    tls: object | None  # whatever the TLS carrier hangs here (version, cipher, certificates)
    label: str  # `127.0.0.1:5222 - cid:5` plus name and user after CONNECT
    name: str
    lang: str
    version: str
    trace: bool

    # life
    start_wall_ns: int
    last_activity_wall_ns: int
    stop_wall_ns: int  # 0 while it lives
    closed: bool
    reason: str  # "" while it lives
    rtt_ns: int  # 0: unknown

    # counters
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    pending_bytes: int
    stalls: int
    subscription_count: int

    # input
    def start(self) -> None:
        """Register with the broker (max_connections is checked here) and send INFO."""
    def feed(self, data: bytes | bytearray | memoryview) -> bool:
        """Parse and route bytes from the carrier; False when the client is closed.

        Output leaves at the end of the turn: inside a running turn that is automatic, outside
        one `broker.turn` asks the loop for it.
        """
    def peer_closed(self, reason: str = "Client Closed") -> None:
        """The carrier saw the end of the stream or an error ("Read Error", "Write Error")."""

    # output
    def send(self, data: bytes) -> None:
        """Queue raw protocol bytes."""
    def send_info(self, info_json: bytes) -> None: ...
    def send_error(self, text: str) -> None:
        """Queue `-ERR 'text'`; the connection stays."""
    def close(self, reason: str, error: str = "") -> None:
        """Close; with `error`, that -ERR is written first (best effort, without waiting)."""
    def flush(self) -> None:
        """Write what is queued now instead of at the end of the turn."""
