class Replay:
    count: int
    highest_segment: int
    durable_position: int
    damage: list[tuple[str, int, str]]
    paths: list[str]
    def __init__(self, path: str, identity: bytes, salt: int) -> None: ...
    def first_indexes(self) -> dict[int, int]: ...
    erased: dict[int, dict[int, int]]
    def mend(self, salts: dict[int, int]) -> None: ...
