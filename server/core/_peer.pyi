from server.core._subscriber import Subscriber
from server.core.connect import ConnectOptions

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
