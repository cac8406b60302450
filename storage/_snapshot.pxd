# cython: language_level=3
from libc.stdint cimport uint8_t

from storage._store cimport StreamStore


cdef bytes encode_store(StreamStore store)
cdef int decode_store(StreamStore store, const uint8_t* data, size_t length) except -1
