# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t


# The header fields that change what a store does. A block is `NATS/1.0[ status]\r\n`, fields, `\r\n`.
cdef const char* find_header(
    const char* block, uint32_t block_len, const char* name, uint32_t name_len, uint32_t* value_len
) noexcept nogil
# Of the header `Nats-TTL`: 0 none (or not readable), -1 never, else nanoseconds.
cdef int64_t ttl_of(const char* block, uint32_t block_len) noexcept nogil
cdef int64_t parse_ttl(const char* text, uint32_t length) noexcept nogil
cdef bint is_marker(const char* block, uint32_t block_len) noexcept nogil
cdef bint is_rollup(const char* block, uint32_t block_len) noexcept nogil
