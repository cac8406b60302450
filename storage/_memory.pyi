from storage._record import RecordHome

class MemoryHome(RecordHome):
    live_bytes: int
    held_memory_bytes: int
