class PurgeJob:
    purged: int
    done: bool
    def step(self, messages_max: int) -> bool: ...
