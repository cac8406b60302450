from storage._record import RecordIndexer
from storage._store import StreamStore

class StoreIndexer(RecordIndexer):
    store: StreamStore
    def __init__(self, store: StreamStore) -> None: ...
