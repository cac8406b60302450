from server.core._account import Account
from server.jetstream._hub import ConsumerHub

def is_backed_up(account: Account, subject: str) -> bool:
    """Whether the one connection that hears it has more than 8 MiB unwritten."""

class Outlet:
    hub: ConsumerHub
    account: Account
    def __init__(self, hub: ConsumerHub, account: Account, ack_prefix: bytes) -> None: ...
    def send_empty(self, to: bytes) -> None: ...
