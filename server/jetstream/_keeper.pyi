class DamagedState(Exception):
    """Records that do not fit together."""

class Keeper:
    """What of one consumer outlives the process."""

    identity: int
    key: str
    is_dirty: bool
    records: list[int]
    def __init__(self, key: str, identity: int) -> None: ...

class Reader:
    def __init__(self, record: bytes) -> None: ...
