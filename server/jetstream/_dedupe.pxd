# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    ID_BYTES_INSIDE = 40


# One message id inside the window. Longer ids live in memory of their own.
cdef struct MessageId:
    uint64_t seq
    int64_t ts_ns
    uint32_t next               # place in the ring + 1 of the one before in its bucket; 0: none
    uint32_t length
    char inside[ID_BYTES_INSIDE]


cdef class DedupeWindow:
    cdef readonly int64_t window_ns
    cdef readonly uint64_t forgotten    # ids that the bound took before their time
    cdef uint64_t seed
    cdef uint32_t ids_max
    cdef MessageId* ring
    cdef uint32_t* buckets
    cdef uint32_t capacity              # of both; a power of two
    cdef uint64_t head                  # the oldest; place = number & (capacity - 1)
    cdef uint64_t tail

    # The sequence that was stored with this id inside the window, or 0.
    cdef uint64_t find(self, const char* text, uint32_t length, int64_t now_ns) noexcept nogil
    cdef int add(self, const char* text, uint32_t length, uint64_t seq, int64_t ts_ns) except -1 nogil
    cdef void expire_until(self, int64_t now_ns) noexcept nogil
    cdef uint32_t* bucket_of(self, const char* text, uint32_t length) noexcept nogil
    cdef void drop_oldest(self) noexcept nogil
    cdef int grow(self) except -1 nogil
