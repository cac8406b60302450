from collections.abc import Callable
from os import PathLike
from typing import Any

from storage._blockhome import BlockHome
from storage._fs import Files
from storage.fs import NotUsable as NotUsable
from storage.keys import DirectoryKeys, ServerKeys

FORMAT_VERSION: int

class StoreDown(OSError): ...

def read_identity(path: PathLike[str]) -> tuple[bytes, int]: ...

class DataDirectory:
    path: str
    homes: dict[int, BlockHome]
    locked: dict[int, tuple[BlockHome, str]]
    keys: DirectoryKeys | None
    damage: list[str]
    written_ticket: int
    applied_ticket: int
    failure: str | None
    identity: bytes
    durable: bool
    def __init__(
        self,
        path: str | PathLike[str],
        files: Files | None = None,
        *,
        durable: bool = True,
        threaded: bool = True,
        segment_size: int = ...,
        log_bytes_max: int = ...,
        block_size_min: int = ...,
        block_size_max: int = ...,
        backlog_bytes_max: int = ...,
        files_open_max: int = 512,
        maps_open_max: int = 1024,
        attach: Callable[[BlockHome, dict[str, Any]], object] | None = None,
        keys: ServerKeys | None = None,
        label_of: Callable[[dict[str, Any]], str] = ...,
    ) -> None: ...
    def create_stream(self, settings: dict[str, Any]) -> BlockHome: ...
    def update_settings(self, home: BlockHome, settings: dict[str, Any]) -> None: ...
    def settings_of(self, home: BlockHome) -> dict[str, Any]: ...
    def delete_stream(self, home: BlockHome) -> None: ...
    def checkpoint_now(self, home: BlockHome, clean: bool) -> None: ...
    def commit(self) -> int: ...
    def poll(self) -> int: ...
    def wait(self, ticket: int) -> None: ...
    def wait_applied(self) -> None: ...
    def sync(self) -> None: ...
    def maintain(self) -> None: ...
    def close(self, clean: bool = True) -> None: ...
    @property
    def congested(self) -> bool: ...
    @property
    def log_event_fd(self) -> int: ...
    @property
    def block_event_fd(self) -> int: ...
    @property
    def stats(self) -> dict[str, Any]: ...
