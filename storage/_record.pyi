class RecordHome:
    last_seq: int
