# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from storage._spans cimport Span


cdef size_t words_of(uint32_t count, uint32_t width) noexcept nogil
cdef int pack_span(Span* span) except -1
cdef void unpack_span(const uint8_t* words, uint32_t width, bint with_ttl, Span* span) noexcept nogil
cdef bint cool_span(Span* span) except -1
cdef bint warm_span(Span* span) noexcept nogil
cdef uint32_t packed_slot(const Span* span, uint32_t at) noexcept nogil
cdef void unpack_some(const Span* span, uint32_t low, uint32_t high, uint32_t* out) noexcept nogil
