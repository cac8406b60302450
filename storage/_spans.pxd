# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from storage._filter cimport SubjectFilter
from storage._index cimport SubjectIndex
from storage._record cimport fetch_ahead


cdef enum:
    SPAN_BITS = 16
    SPAN_SLOTS = 65536
    WARMED_MAX = 32                 # cold spans that are kept warm after somebody read them
    HAS_TTL = 0x80000000            # in a slot, above the subject's number

cdef struct Span:
    uint64_t number                 # sequence >> SPAN_BITS
    uint64_t version                # another one after each change
    uint64_t size                   # counted bytes of the live messages
    uint32_t live
    uint32_t top                    # slots below it are in use
    uint32_t capacity
    uint32_t* subjects              # of each sequence, 0: nothing lives there
    uint32_t* distances             # to the message before of the same subject; 0: none
    uint8_t* packed                 # its part of the last snapshot, of `packed_version`
    uint64_t packed_version
    uint32_t packed_len
    bint cold                       # only packed, and `firsts` for the distances that lead out
    uint32_t* firsts
    uint32_t first_count
    uint64_t uncoolable             # a version, plus one, that would not get small enough
    uint64_t idle_version           # what `version` was when the last span was begun


cdef class SpanIndex:
    cdef Span* spans
    cdef size_t head                # spans before it are gone
    cdef size_t tail
    cdef size_t capacity
    cdef uint64_t clock
    cdef uint64_t[WARMED_MAX] warmed    # ring of their numbers + 1
    cdef uint32_t warmed_at
    cdef readonly uint64_t live

    cdef int append(self, uint64_t seq, uint32_t slot, uint64_t before, uint64_t size) except -1
    cdef inline void foresee(self, int step) noexcept nogil:
        """An append is likely to come soon: step 0 asks for the last span, step 1 for its end."""
        cdef Span* last
        if self.tail == self.head:
            return
        last = &self.spans[self.tail - 1]
        if step == 0:
            fetch_ahead(last, sizeof(Span))
            fetch_ahead(&self.live, sizeof(uint64_t))
        elif step == 1:
            fetch_ahead(last.subjects + last.top, sizeof(uint32_t))
            fetch_ahead(last.distances + last.top, sizeof(uint32_t))

    cdef uint32_t slot(self, uint64_t seq) noexcept nogil
    cdef int remove(self, uint64_t seq, uint64_t size) except -1
    cdef int remove_all(self) except -1
    cdef void cut_above(self, uint64_t seq) noexcept nogil
    cdef size_t span_from(self, uint64_t number) noexcept nogil

    cdef uint64_t next_live(self, uint64_t seq) noexcept nogil
    cdef uint64_t last_live(self, uint64_t seq) noexcept nogil
    cdef uint64_t next_match(self, SubjectFilter wanted, uint64_t seq) noexcept nogil
    cdef uint64_t _next_of_few(self, SubjectFilter wanted, uint64_t seq) noexcept nogil
    cdef bint _known_empty(self, SubjectFilter wanted, const Span* span) noexcept nogil
    cdef uint32_t next_matches(
        self, SubjectFilter wanted, uint64_t seq, uint64_t last, uint64_t* found, uint32_t limit,
        uint64_t* resume,
    ) noexcept nogil
    cdef uint64_t last_match(self, SubjectFilter wanted, uint64_t seq) noexcept nogil
    cdef uint64_t count_from(self, SubjectFilter wanted, uint64_t seq) noexcept nogil
    cdef uint64_t count_between(self, SubjectFilter wanted, uint64_t seq, uint64_t last) noexcept nogil
    cdef uint64_t end(self) noexcept nogil

    cdef uint64_t first_of(self, SubjectIndex index, uint32_t subject, uint64_t seq) noexcept nogil
    cdef uint64_t last_of(self, SubjectIndex index, uint32_t subject, uint64_t seq) noexcept nogil
    cdef uint64_t memory_bytes(self) noexcept
    cdef void _free(self, Span* span) noexcept nogil
    cdef inline Span* warm(self, Span* span) noexcept nogil:
        if span.cold:
            self._warm(span)
        return span
    cdef void _warm(self, Span* span) noexcept nogil
    cdef int _cool_idle(self) except -1
    cdef int _drop(self, size_t at) except -1
    cdef int _grow(self, Span* span, uint32_t slots) except -1
    cdef Span* _add(self, uint64_t number) except NULL
    cdef uint64_t _scan_up(self, uint32_t subject, uint64_t seq, uint64_t end) noexcept nogil
    cdef uint64_t _scan_down(self, uint32_t subject, uint64_t seq, uint64_t end) noexcept nogil
    cdef uint64_t _chain_down_to(self, SubjectIndex index, uint32_t subject, uint64_t seq, bint* whole) noexcept nogil
