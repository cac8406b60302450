# cython: language_level=3
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef enum:
    SUBJECT_ID_MASK = 0x3FFFFFFF    # subjects are numbered from 1 to this
    SUBJECT_LEN_MAX = 65534
    FEW_SUBJECTS = 16               # up to here a filter lists what it matches
    FIRST_IS_BOUND = 1              # first_seq is not above the first live sequence

cdef struct Subject:
    uint64_t first_seq
    uint64_t last_seq
    uint64_t count                  # 0: this number is free
    uint32_t text                   # place in the arena
    uint32_t hash
    uint32_t node
    uint16_t text_len
    uint8_t flags

# Open addressing; a slot is tag << 32 | reference. While `old` is there, it is being moved over.
cdef struct Table:
    uint64_t* slots
    uint64_t* old
    uint32_t mask
    uint32_t used
    uint32_t moved

cdef struct Node:
    Table children
    uint32_t parent
    uint32_t subject                # the subject that ends here, or 0
    uint32_t label                  # place in the arena of the tokens between parent and here
    uint16_t label_len
    uint16_t prefix_len             # where the tokens of the children begin

cdef struct FilterToken:
    const char* text
    uint16_t len
    uint8_t kind

cdef struct CachedCount:
    uint64_t span
    uint64_t version
    uint64_t count

cdef enum FilterMode:
    MATCH_NONE
    MATCH_ALL
    MATCH_ONE
    MATCH_BITS


cdef class SubjectIndex:
    cdef Subject* subjects
    cdef readonly uint32_t subject_count
    cdef uint32_t subject_top       # numbers below it were given out
    cdef uint32_t subject_capacity
    cdef uint32_t subject_free      # chain of free numbers through `node`
    cdef Table by_text
    cdef uint8_t* tails             # by number: which of `tail_texts` follows a leaf's first token
    cdef uint32_t[256] tail_texts   # places in the arena; 0: not taken
    cdef uint16_t[256] tail_lens
    cdef Node* nodes
    cdef uint32_t node_top
    cdef uint32_t node_capacity
    cdef uint32_t node_free
    cdef char** chunks
    cdef uint32_t chunk_count
    cdef uint32_t chunk_bytes       # size of the only chunk while it is small
    cdef uint32_t arena_top
    cdef uint32_t free_blocks[65]
    cdef uint32_t* created          # ring of the numbers given out last
    cdef uint64_t created_total
    cdef uint64_t generation        # grows when all subjects go at once

    cdef uint32_t find(self, const char* text, uint16_t text_len) noexcept nogil
    cdef uint32_t intern(self, const char* text, uint16_t text_len) except 0
    cdef int drop(self, uint32_t number) except -1
    cdef int place(self, uint32_t number, const char* text, uint16_t text_len) except -1
    cdef int finish_places(self) except -1
    cdef int clear(self) except -1
    cdef inline char* text_of(self, uint32_t number) noexcept nogil:
        return self.arena_at(self.subjects[number].text)
    cdef inline char* arena_at(self, uint32_t place) noexcept nogil:
        return self.chunks[place >> 17] + (<size_t>(place & 0x1FFFF) << 3)
    cdef uint64_t memory_bytes(self) noexcept

    cdef int _start(self) except -1
    cdef void _free_all(self) noexcept
    cdef uint32_t _take(self, uint32_t length) except 0
    cdef void _give(self, uint32_t place, uint32_t length) noexcept nogil
    cdef uint32_t _new_subject(self) except 0
    cdef uint32_t _new_node(self) except 0
    cdef int _fill(self, uint32_t number, const char* text, uint16_t text_len, uint32_t hash) except -1
    cdef int _note_created(self, uint32_t number) except -1
    cdef int _hang(self, uint32_t number) except -1
    cdef int _note_tail(self, uint32_t number, const char* tail, uint32_t tail_len) except -1
    cdef int _hang_leaf(self, uint32_t node, uint32_t number) except -1
    cdef uint64_t* _child(self, Node* node, const char* token, uint32_t token_len, uint32_t tag) noexcept nogil
    cdef bint _token_at(self, uint32_t reference, uint32_t start, const char* token, uint32_t token_len) noexcept nogil
    cdef uint32_t _split(self, uint32_t node, uint64_t* slot, uint32_t shared) except 0
    cdef int _unhang(self, uint32_t number) except -1


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
    cdef CachedCount* counts        # of whole spans, by span number
    cdef uint64_t count_mask

    cdef int sync(self) except -1
    cdef bint matches_text(self, const char* text, uint32_t text_len) noexcept nogil
    cdef inline bint has(self, uint32_t number) noexcept nogil:
        if self.mode == MATCH_BITS:
            return (self.bits[number >> 5] >> (number & 31)) & 1
        return self.mode == MATCH_ALL or (self.mode == MATCH_ONE and number == self.subject)
    cdef CachedCount* cached(self, uint64_t span, uint64_t span_count) noexcept nogil

    cdef uint32_t _parse(self, bytes text, uint32_t at)
    cdef bint _is_literal(self, uint32_t which) noexcept nogil
    cdef bint _rest_matches(self, const char* text, uint32_t length, uint32_t at, uint32_t end) noexcept nogil
    cdef int _build(self) except -1
    cdef int _mark_literal(self, uint32_t which) except -1
    cdef int _room(self) except -1
    cdef void _mark(self, uint32_t number) noexcept nogil
    cdef inline void _set(self, uint32_t number) noexcept nogil:
        self.bits[number >> 5] |= <uint32_t>1 << (number & 31)
    cdef void _count_set(self) noexcept nogil
    cdef void _visit_slots(self, const uint64_t* slots, uint32_t low, uint32_t high, uint32_t prefix_len, uint32_t at, uint32_t end) noexcept nogil
    cdef void _prefetch(self, uint32_t reference, int stage) noexcept nogil
    cdef void _mark_all(self, uint32_t reference) noexcept nogil
    cdef void _walk(self, uint32_t node, uint32_t at, uint32_t end) noexcept nogil
    cdef void _visit(self, uint32_t reference, uint32_t prefix_len, uint32_t at, uint32_t end) noexcept nogil
