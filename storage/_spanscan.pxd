# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._filter cimport SubjectFilter
from storage._spans cimport Span


cdef uint64_t count_span(SubjectFilter wanted, const Span* span, uint32_t low, uint32_t high) noexcept nogil
cdef uint32_t find_in_span(const Span* span, uint32_t low, uint32_t high, uint32_t subject) noexcept nogil
cdef uint32_t find_down_in_span(const Span* span, uint32_t high, uint32_t subject) noexcept nogil
cdef uint32_t next_in_span(
    SubjectFilter wanted, const Span* span, uint32_t* at, uint32_t end, uint64_t* found, uint32_t limit
) noexcept nogil
