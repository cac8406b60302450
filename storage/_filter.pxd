# cython: language_level=3
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from storage._index cimport Node, SubjectIndex


cdef enum:
    FEW_SUBJECTS = 16               # up to here a filter lists what it matches

cdef struct FilterToken:
    const char* text
    uint16_t len
    uint8_t kind

# The tokens of all filters as a tree: a step behind each different beginning.
cdef struct Step:
    uint32_t any_token              # the step behind `*`; 0: none
    uint8_t ends                    # a filter ends here
    uint8_t rest                    # a filter goes on with `>`

cdef struct Branch:
    uint32_t at
    uint32_t token
    uint32_t to                     # 0: no branch

cdef struct CachedCount:
    uint64_t span
    uint64_t version
    uint64_t count

cdef enum FilterMode:
    MATCH_NONE
    MATCH_ALL
    MATCH_ONE
    MATCH_BITS


cdef class SubjectFilter:
    cdef readonly tuple filters
    cdef SubjectIndex index
    cdef FilterToken* tokens
    cdef uint32_t* starts           # of each filter's tokens; one more at the end
    cdef uint32_t filter_count
    cdef FilterMode mode            # valid after `sync`
    cdef uint32_t subject           # for MATCH_ONE
    cdef uint32_t* bits
    cdef uint32_t bit_capacity
    cdef readonly uint32_t matched_count  # not fewer than match now
    cdef uint32_t[FEW_SUBJECTS] few # the numbers, while there are few
    cdef uint32_t few_count
    cdef uint64_t others            # subjects seen that do not match
    cdef uint64_t created_seen
    cdef uint64_t generation
    cdef bint built
    cdef Step* steps
    cdef uint32_t step_count
    cdef Branch* branches
    cdef uint32_t branch_mask
    cdef CachedCount* counts        # of whole spans, by span number
    cdef uint64_t count_mask

    cdef uint32_t* ordered          # the numbers in the order of their texts, when somebody asked
    cdef uint32_t ordered_count
    cdef uint64_t ordered_changes

    # What the last count found: so many match from `counted_from` to `counted_to`.
    cdef uint64_t counted
    cdef uint64_t counted_from
    cdef uint64_t counted_to
    cdef uint64_t counted_removals  # how many removals it knows of
    cdef uint64_t counted_rewound
    cdef bint counted_holds
    cdef bint removals_lost         # the ring of removals was too small

    cdef int sync(self) except -1
    cdef bint matches_text(self, const char* text, uint32_t text_len) noexcept nogil
    cdef inline bint has(self, uint32_t number) noexcept nogil:
        if self.mode == MATCH_BITS:
            return (self.bits[number >> 5] >> (number & 31)) & 1
        return self.mode == MATCH_ALL or (self.mode == MATCH_ONE and number == self.subject)
    cdef CachedCount* cached(self, uint64_t span, uint64_t span_count) noexcept nogil

    cdef void note_count(self, uint64_t counted, uint64_t first, uint64_t last) noexcept nogil

    cdef void _settle(self) noexcept nogil
    cdef uint32_t _parse(self, bytes text, uint32_t at)
    cdef int _grow_steps(self, uint32_t token_count) except -1
    cdef uint32_t _step(self, uint32_t at, uint32_t token) noexcept nogil
    cdef Branch* _branch(self, uint32_t at, const char* text, uint32_t length) noexcept nogil
    cdef bint _step_matches(self, uint32_t at, const char* text, uint32_t length) noexcept nogil
    cdef bint _ends_or_matches(self, uint32_t to, const char* text, uint32_t length, uint32_t token_len) noexcept nogil
    cdef bint _is_literal(self, uint32_t which) noexcept nogil
    cdef bint _rest_matches(self, const char* text, uint32_t length, uint32_t at, uint32_t end) noexcept nogil
    cdef int _build(self) except -1
    cdef int _mark_literal(self, uint32_t which) except -1
    cdef int _room(self) except -1
    cdef void _mark(self, uint32_t number) noexcept nogil
    cdef inline void _set(self, uint32_t number) noexcept nogil:
        self.bits[number >> 5] |= <uint32_t>1 << (number & 31)
    cdef void _count_set(self) noexcept nogil
    cdef bint _tail_matches(self, uint32_t number, uint32_t at, uint32_t end) noexcept nogil
    cdef bint _name_matches(self, uint32_t name, uint32_t at, uint32_t end) noexcept nogil
    cdef bint _is_crowd(self, const Node* node) noexcept nogil
    cdef void _mark_crowd(self, uint32_t node, uint32_t at, uint32_t end) noexcept nogil
    cdef void _visit_slots(
        self, uint32_t node, const uint64_t* slots, uint32_t low, uint32_t high, uint32_t at,
        uint32_t end,
    ) noexcept nogil
    cdef void _prefetch(self, uint32_t reference, int stage) noexcept nogil
    cdef void _mark_all(self, uint32_t reference) noexcept nogil
    cdef void _walk(self, uint32_t node, uint32_t at, uint32_t end) noexcept nogil
    cdef void _visit(self, uint32_t reference, uint32_t prefix_len, uint32_t at, uint32_t end) noexcept nogil
