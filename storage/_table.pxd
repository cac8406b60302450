# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    CHILDREN_LISTED = 8             # up to here a node's children are a plain list

# A slot is tag << 32 | reference. While `old` is there, it is being moved over.
cdef struct Table:
    uint64_t* slots
    uint64_t* old
    uint32_t mask
    uint32_t used
    uint32_t moved


cdef int table_start(Table* table, uint32_t capacity) except -1
cdef int table_put(Table* table, uint64_t slot) except -1
cdef void table_remove(Table* table, uint32_t tag, uint32_t reference) noexcept nogil
cdef void table_free(Table* table) noexcept nogil
cdef int children_put(Table* table, uint64_t slot) except -1
cdef void children_remove(Table* table, uint32_t tag, uint32_t reference) noexcept nogil
