# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from server.jetstream._pending cimport PendingTable


cdef enum:
    WHOLE = 1
    MORE = 2
    CHANGES = 3
    OP_DELIVERED = 1
    OP_REDELIVERED = 2
    OP_ACKED = 3
    OP_RETIRED = 4
    OP_POSTPONED = 5


# Where a consumer stands, beside what it waits for.
cdef struct Place:
    uint64_t next_seq
    uint64_t next_consumer_seq
    uint64_t delivered_seq
    uint64_t floor_seq
    uint64_t floor_consumer_seq
    uint64_t resume_seq             # 0: it does not deliver the last of each subject first
    int64_t delivered_wall_ns
    int64_t acked_wall_ns


cdef class Keeper:
    cdef readonly uint64_t identity # of the consumer: a namesake's records are none of ours
    cdef readonly str key
    cdef public bint is_dirty
    cdef public list records        # sequences of its records in the log
    cdef bint needs_whole           # the next record tells everything
    cdef char* changes
    cdef size_t size
    cdef size_t room
    cdef size_t whole_size
    cdef size_t since_whole
    cdef uint64_t seq               # what the changes so far lead to
    cdef uint64_t consumer_seq

    cdef int delivered(self, uint64_t seq, uint64_t consumer_seq) except -1
    cdef int redelivered(self, uint64_t seq, uint64_t consumer_seq, int32_t count) except -1
    cdef int acked(self, uint64_t seq) except -1
    cdef int retired(self, uint64_t seq) except -1
    cdef int postponed(self, uint64_t seq, int64_t delay_ns) except -1
    cdef int moved(self) except -1
    cdef list take(self, const Place* place, PendingTable table, int64_t now_ns, int64_t wall_ns)

    cdef int reserve(self, size_t size) except -1
    cdef int put(self, uint64_t value) except -1
    cdef int put_signed(self, int64_t value) except -1
    cdef int op(self, uint8_t which) except -1
    cdef int put_entries(
        self, PendingTable table, uint32_t* number, uint32_t most, int64_t now_ns
    ) except -1
    cdef int put_place(self, const Place* place) except -1
    cdef int put_retired(self, PendingTable table) except -1


# Reads records again, one change after the other.
cdef class Reader:
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef bytes record
    cdef uint64_t get(self) except? 0
    cdef int64_t get_signed(self) except? 0
