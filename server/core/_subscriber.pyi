from typing import NamedTuple

from server.core._account import Account
from server.core._connection import Connection
from server.core._permissions import Permissions

class SubInfo(NamedTuple):
    subject: str
    queue: str
    sid: str
    delivered: int
    max: int  # 0: no limit

class Subscriber(Connection):
    account: Account | None
    permissions: Permissions | None
    subscription_count: int
    out_msgs: int
    out_bytes: int
    def subscriptions(self) -> list[SubInfo]: ...
    def send(self, data: bytes) -> None: ...
    def send_info(self, info_json: bytes) -> None: ...
    def send_error(self, text: str) -> None: ...
    def close(self, reason: str, error: str = "") -> None: ...
    def flush(self) -> None: ...
