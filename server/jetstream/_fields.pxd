# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum Unusual:
    HAS_TTL = 1
    HAS_ROLLUP = 2
    HAS_OTHER = 4


cdef enum Rollup:
    ROLL_NOTHING = 0            # or a text that means nothing
    ROLL_SUBJECT = 1
    ROLL_ALL = 2


# What a header block says to the server; the pointers are into the block.
cdef struct Field:
    const char* text            # NULL: the field is not there
    uint32_t length


cdef struct Fields:
    Field message_id
    Field expected_stream
    Field expected_last_seq
    Field expected_last_subject_seq
    Field expected_last_message_id
    Field ttl
    Field rollup
    int unusual                 # bits of Unusual: what is for `publish.Publisher`, or for the sink to ...
    int64_t ttl_ns              # ... understand: 0 is no time to live of its own
    Rollup rolls_up


cdef void read_fields(const char* block, size_t size, Fields* fields) noexcept nogil
# As the reference reads it: what is no number is the highest one.
cdef uint64_t number_of(const Field* field) noexcept nogil
cdef Rollup rollup_of(const Field* field) noexcept nogil
