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
    def subscriptions(
        self, skip: int = 0, limit: int = ..., reached_by: bytes = b""
    ) -> list[SubInfo]:
        """A page of them, in no order but always the same while none comes or goes."""
    def reached_count(self, subject: bytes, queue: bytes = b"") -> int:
        """How many a subject reaches, of one queue if named. One with wildcards reaches those
        whose subjects it names entirely."""
    def overlaps(self, subject: bytes) -> bool:
        """Whether there is a subject that both this one and a subscription name."""
    def send(self, data: bytes) -> None: ...
    def send_info(self, info_json: bytes) -> None: ...
    def send_error(self, text: str) -> None: ...
    def close(self, reason: str, error: str = "") -> None: ...
    def flush(self) -> None: ...
