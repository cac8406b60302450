# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._block cimport Block

cdef bint head_fits(const char* data, size_t size, uint64_t group, uint64_t salt, const Block* block) noexcept nogil
cdef bint footer_fits(const Block* footer, const Block* block) noexcept nogil
cdef bint end_fits(const Block* block, uint64_t salt) noexcept nogil
cdef str why_refused(str path, uint64_t group, uint64_t salt, const Block* block)
