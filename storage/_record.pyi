class RecordHome:
    last_seq: int

class RecordIndexer: ...
