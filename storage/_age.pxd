# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t

from storage._store cimport StreamStore


cdef object expire(StreamStore store, int64_t now_ns, uint32_t messages_max)
cdef object next_expiry(StreamStore store)
cpdef bytes marker_headers(int64_t ttl_ns)
