# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    KEY_BYTES = 40
    SEGMENTS_MAX = 16


# One message id inside the window, by its key: a short id itself, a long one folded.
cdef struct MessageId:
    uint64_t seq
    int64_t ts_ns
    uint32_t older              # the place of the one before in its bucket; 0: none
    uint32_t length             # of the id
    char key[KEY_BYTES]


cdef class DedupeWindow:
    cdef readonly int64_t window_ns
    cdef readonly uint64_t forgotten    # ids that the bound took before their time
    cdef uint64_t seed
    cdef uint32_t ids_max
    cdef uint64_t head                  # the oldest one's number; numbers only go up
    cdef uint64_t tail
    cdef MessageId** chunks             # a ring of their addresses; chunks behind the oldest id are gone
    cdef uint32_t chunk_capacity        # a power of two
    cdef uint32_t* buckets[SEGMENTS_MAX]    # places of their newest ids; each as long as all before it
    cdef uint32_t bucket_count
    cdef uint32_t bucket_base           # the highest power of two that is not above it

    # The sequence that was stored with this id inside the window, or 0.
    cdef uint64_t find(self, const char* text, uint32_t length, int64_t now_ns) noexcept nogil
    cdef int add(self, const char* text, uint32_t length, uint64_t seq, int64_t ts_ns) except -1 nogil
    cdef const char* key_of(self, const char* text, uint32_t length, char* folded) noexcept nogil
    cdef MessageId* entry_at(self, uint32_t place) noexcept nogil
    cdef uint32_t* bucket(self, uint32_t number) noexcept nogil
    cdef uint32_t* bucket_of(self, const char* key, uint32_t length) noexcept nogil
    cdef bint has_ended(self, int64_t now_ns) noexcept nogil
    cdef void expire_some(self, int64_t now_ns, uint64_t most) noexcept nogil
    cdef void drop_oldest(self) noexcept nogil
    cdef void free_all(self) noexcept nogil
    cdef int reserve(self, uint64_t ids) except -1 nogil
    cdef int add_segment(self, uint32_t number) except -1 nogil
    cdef int add_bucket(self) except -1 nogil
    cdef void split(self, uint32_t number) noexcept nogil
    cdef int add_chunk(self) except -1 nogil
    cdef int add_chunk_places(self) except -1 nogil
