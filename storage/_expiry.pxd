# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from storage._spans cimport SpanIndex


cdef struct Expiry:
    int64_t at_ns
    uint64_t seq

cdef struct WheelSlot:
    Expiry* entries
    uint32_t count
    uint32_t capacity
    int64_t lowest_ns               # not above the earliest entry


cdef class ExpiryWheel:
    cdef WheelSlot* slots
    cdef readonly uint64_t count
    cdef uint64_t stale             # entries whose message is gone already
    cdef int64_t swept_second       # slots before it have nothing due
    cdef int64_t next_ns            # not above the earliest entry

    cdef inline int slot_count(self) noexcept:
        return 1024
    cdef int add(self, uint64_t seq, int64_t at_ns) except -1
    cdef uint32_t take_due(self, int64_t now_ns, uint64_t* seqs, uint32_t limit) noexcept
    cdef int64_t next_due(self) noexcept
    cdef int note_stale(self, SpanIndex spans) except -1
    cdef int keep_live(self, SpanIndex spans, uint64_t last_seq) except -1
    cdef void clear(self) noexcept
    cdef uint32_t _take_from(self, WheelSlot* slot, int64_t now_ns, uint64_t* seqs, uint32_t limit) noexcept
    cdef void _find_next(self) noexcept
