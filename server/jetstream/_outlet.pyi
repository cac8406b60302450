from server.core._account import Account
from server.jetstream._hub import ConsumerHub

class Outlet:
    hub: ConsumerHub
    account: Account
    def __init__(self, hub: ConsumerHub, account: Account, ack_prefix: bytes) -> None: ...
    def send_empty(self, to: bytes) -> None: ...
