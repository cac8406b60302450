# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t


cdef enum Unusual:
    HAS_TTL = 1
    HAS_OTHER = 2


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
    int unusual                 # what is for `publish.Publisher`: bits of Unusual


cdef void read_fields(const char* block, size_t size, Fields* fields) noexcept nogil
# As the reference reads it: what is no number is the highest one.
cdef uint64_t number_of(const Field* field) noexcept nogil
