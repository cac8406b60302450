from storage.ports import StreamStore

class PurgeJob:
    purged: int
    done: bool
    def step(self, messages_max: int) -> bool: ...

def let_go(store: StreamStore) -> None: ...
