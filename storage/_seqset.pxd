# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef enum:
    LEAF_RANGES = 128

cdef struct Leaf:
    uint32_t count
    uint64_t first[LEAF_RANGES]
    uint64_t last[LEAF_RANGES]


cdef class SequenceSet:
    cdef Leaf** leaves
    cdef size_t leaf_count
    cdef size_t leaf_capacity
    cdef readonly uint64_t size
    cdef readonly uint64_t range_count

    cpdef bint add(self, uint64_t seq) except -1
    cpdef uint64_t add_range(self, uint64_t first, uint64_t last) except? 0
    cpdef bint remove(self, uint64_t seq) except -1
    cpdef uint64_t remove_range(self, uint64_t first, uint64_t last) except? 0
    cpdef uint64_t count_between(self, uint64_t first, uint64_t last) noexcept
    cdef bint has(self, uint64_t seq) noexcept nogil
    # The lowest range that ends at or above `seq`: 1 and its bounds, or 0.
    cdef bint range_from(self, uint64_t seq, uint64_t* first, uint64_t* last) noexcept nogil

    cdef bint _seek(self, uint64_t seq, size_t* leaf, uint32_t* at) noexcept nogil
    cdef uint64_t _first_after(self, size_t leaf, uint32_t at) noexcept nogil
    cdef int _insert(self, size_t leaf, uint32_t at, uint64_t first, uint64_t last) except -1
    cdef void _delete(self, size_t leaf, uint32_t at) noexcept nogil
    cdef int _new_leaf(self, size_t at) except -1
    cdef void _drop_leaf(self, size_t at) noexcept nogil


# LEB128 numbers, for whoever encodes beside a set. `get_number` gives NULL for what is no number.
cdef uint8_t* put_number(uint8_t* at, uint64_t number) noexcept nogil
cdef const uint8_t* get_number(const uint8_t* at, const uint8_t* end, uint64_t* number) noexcept nogil
