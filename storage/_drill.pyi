from storage._blockhome import BlockHome
from storage._directory import DataDirectory
from storage._store import StreamStore

def append(
    directory: DataDirectory,
    home: BlockHome,
    count: int,
    batch: int,
    size: int,
    subjects: int,
    store: StreamStore | None = None,
    batches_open_max: int = 16,
) -> None: ...
def load(home: BlockHome, count: int, stride: int) -> None: ...
