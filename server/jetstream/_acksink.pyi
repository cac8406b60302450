from server.core._account import Account
from server.jetstream._hub import ConsumerHub

class AckSink:
    newer_prefix: bytes
    def __init__(self, hub: ConsumerHub, account: Account) -> None: ...
    def close(self) -> None: ...
