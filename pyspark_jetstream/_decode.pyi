from collections.abc import Callable
from typing import Any

Data = bytes | memoryview

SUBJECT: int
SEQ: int
TIME: int
PAYLOAD: int
HEADERS: int
MSG_ID: int
SIZE: int
DELETED: int

class Damage(Exception):
    def __init__(self, offset: int, reason: str) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def reason(self) -> str: ...

class Encrypted(Exception): ...

class Decoder:
    damaged: int
    first_damage: tuple[int, str] | None
    last_seen: int
    rows_read: int
    def __init__(
        self,
        data: Data,
        salt: int,
        *,
        base: int = 64,
        end: int = 0,
        first: int = 0,
        last: int = ...,
        low_ns: int = ...,
        high_ns: int = ...,
        dead: bytes = b"",
        accepts: Callable[[bytes], bool] | None = None,
        columns: int = 0,
        batch_bytes: int = ...,
        tolerant: bool = False,
        show_dead: bool = False,
        known: Callable[[int], int | None] | None = None,
    ) -> None: ...
    def next_batch(self) -> dict[str, Any] | None: ...

def repeat_text(text: bytes, rows: int) -> tuple[bytes, bytes]: ...
def to_micros(nanos: bytes) -> bytes: ...
def open_records(
    data: Data, salt: int, at: int, last: int, opener: Callable[[int, bytes, bytes], bytes]
) -> tuple[bytes, int]: ...
