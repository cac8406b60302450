# cython: language_level=3
from storage._record cimport RecordIndexer
from storage._store cimport StreamStore


cdef class StoreIndexer(RecordIndexer):
    cdef readonly StreamStore store
