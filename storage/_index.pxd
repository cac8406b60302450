# cython: language_level=3
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from storage._table cimport Table


cdef enum:
    SUBJECT_ID_MASK = 0x3FFFFFFF    # subjects are numbered from 1 to this
    SUBJECT_LEN_MAX = 65534
    FEW_SUBJECTS = 16               # up to here a filter lists what it matches
    FIRST_IS_BOUND = 1              # first_seq is not above the first live sequence
    TEXT_INSIDE = 32                # a longer text lives in the arena
    TAIL_UNNAMED = 0                # in `tails`; from 1 on the names
    TAIL_NAMES = 253
    TAIL_ENDED = 254                # the subject ends at its node
    TAIL_NONE = 255                 # it has one token there
    NO_NODE = 0xFFFFFFFF            # the number is free

# In a reference to a child, beside the number of a node or, in a leaf, of a subject.
cdef enum:
    LEAF = 0x80000000
    ONE_TOKEN = 0x40000000          # this leaf has one token left

# A cache line, with most subjects' texts in it.
cdef struct Subject:
    uint64_t first_seq
    uint64_t last_seq
    uint64_t count                  # 0: this number is free
    uint32_t hash                   # of a free number: the next free one
    uint16_t text_len
    uint8_t flags
    uint8_t unused
    char text[32]                   # or, beyond TEXT_INSIDE, its place in the arena

cdef struct Node:
    Table children
    uint32_t parent
    uint32_t subject                # the subject that ends here, or 0
    uint32_t inner                  # how many of the children are nodes
    uint32_t label                  # place in the arena of the tokens between parent and here
    uint16_t label_len
    uint16_t prefix_len             # where the tokens of the children begin

cdef struct Removal:
    uint64_t seq
    uint32_t subject


cdef inline uint32_t hash_text(const char* text, size_t length) noexcept nogil:
    cdef uint64_t h = <uint64_t>length * 0x9E3779B97F4A7C15u, word
    while length >= 8:
        memcpy(&word, text, 8)
        h = (h ^ word) * 0xFF51AFD7ED558CCDu
        h ^= h >> 32
        text += 8
        length -= 8
    if length:
        word = 0
        memcpy(&word, text, length)
        h = (h ^ word) * 0xC4CEB9FE1A85EC53u
        h ^= h >> 29
    h *= 0x9E3779B97F4A7C15u
    return <uint32_t>(h >> 32)


cdef inline uint32_t token_length(const char* text, uint32_t length) noexcept nogil:
    cdef const char* dot = <const char*>memchr(text, 46, length)
    return length if dot == NULL else <uint32_t>(dot - text)


cdef class SubjectIndex:
    cdef Subject* subjects
    cdef readonly uint32_t subject_count
    cdef uint32_t subject_top       # numbers below it were given out
    cdef uint32_t subject_capacity
    cdef uint32_t subject_free      # chain of free numbers through `hash`
    cdef Table by_text
    cdef uint32_t* nodes_of         # by number: where the subject hangs
    cdef uint8_t* tails             # by number: which of `tail_texts` follows its first token there
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
    cdef uint32_t free_blocks[72]   # by units; those above 64 by powers of two
    cdef uint32_t* created          # ring of the numbers given out last; made by the first filter
    cdef uint32_t created_mask
    cdef uint64_t created_total
    cdef uint64_t dropped_total
    cdef uint64_t created_from      # the ring knows nothing of what was given out before
    cdef Removal* removed           # ring of the messages removed last; made by the first count
    cdef uint32_t removed_mask
    cdef uint64_t removed_total
    cdef uint64_t generation        # grows when all subjects go at once
    cdef uint64_t rewound           # grows when sequences are taken back

    cdef uint32_t find(self, const char* text, uint16_t text_len) noexcept nogil
    cdef uint32_t intern(self, const char* text, uint16_t text_len) except 0
    cdef int drop(self, uint32_t number) except -1
    cdef int place(self, uint32_t number, const char* text, uint16_t text_len) except -1
    cdef int finish_places(self) except -1
    cdef int clear(self) except -1
    cdef int keep_created(self) except -1
    cdef int keep_removed(self) except -1
    cdef inline void note_removed(self, uint64_t seq, uint32_t number) noexcept nogil:
        if self.removed != NULL:
            self.removed[self.removed_total & self.removed_mask].seq = seq
            self.removed[self.removed_total & self.removed_mask].subject = number
        self.removed_total += 1
    cdef inline char* text_of(self, uint32_t number) noexcept nogil:
        if self.subjects[number].text_len <= TEXT_INSIDE:
            return self.subjects[number].text
        return self.arena_at(self.place_of(number))
    cdef inline uint32_t place_of(self, uint32_t number) noexcept nogil:
        return (<uint32_t*>self.subjects[number].text)[0]
    cdef inline char* arena_at(self, uint32_t place) noexcept nogil:
        return self.chunks[place >> 17] + (<size_t>(place & 0x1FFFF) << 3)
    cdef uint64_t memory_bytes(self) noexcept

    cdef int _start(self) except -1
    cdef void _free_all(self) noexcept
    cdef uint32_t _take(self, uint32_t length) except 0
    cdef void _give(self, uint32_t place, uint32_t length) noexcept nogil
    cdef uint32_t _new_subject(self) except 0
    cdef int _grow_subjects(self, size_t capacity) except -1
    cdef void _chain_free(self, uint32_t number) noexcept nogil
    cdef uint32_t _new_node(self) except 0
    cdef int _fill(self, uint32_t number, const char* text, uint16_t text_len, uint32_t hash) except -1
    cdef void _note_created(self, uint32_t number) noexcept nogil
    cdef int _hang(self, uint32_t number) except -1
    cdef int _note_tail(self, uint32_t number, const char* tail, uint32_t tail_len) except -1
    cdef int _end_at(self, uint32_t node, uint32_t number) except -1
    cdef int _hang_leaf(self, uint32_t node, uint32_t number) except -1
    cdef uint64_t* _child(self, Node* node, const char* token, uint32_t token_len, uint32_t tag) noexcept nogil
    cdef bint _token_at(self, uint32_t reference, uint32_t start, const char* token, uint32_t token_len) noexcept nogil
    cdef uint32_t _split(self, uint32_t node, uint64_t* slot, uint32_t shared) except 0
    cdef int _unhang(self, uint32_t number) except -1
