# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint32_t


cdef class Waits:
    cdef int64_t ack_wait_ns
    cdef int64_t* backoff_ns
    cdef uint32_t backoff_count
    cdef readonly int64_t shortest_ns

    # After so many redeliveries.
    cdef int64_t after(self, int32_t redeliveries) noexcept nogil
