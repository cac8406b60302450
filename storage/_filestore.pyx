# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How a recovering home tells its store: the C-level bridge between `_blockhome` and `_store`."""
from storage._record cimport Record


cdef class StoreIndexer(RecordIndexer):
    """Passes what the replay of the log shows on to the store's indexes."""

    def __init__(self, StreamStore store not None):
        self.store = store

    cdef int index(self, const Record* record) except -1:
        return self.store.index(record)

    cdef int unindex(self, const Record* record) except -1:
        return self.store.unindex(record)

    cdef int reset(self) except -1:
        return self.store._reset(0)
