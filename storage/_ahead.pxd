# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport Block
from storage._disk cimport pthread_cond_t, pthread_mutex_t, pthread_t

cdef enum:
    AHEAD_MIN = 3       # fewer blocks are not worth a thread
    AHEAD_MAX = 4


# A block whose records are to be checked, as it was when it was queued.
cdef struct AheadBlock:
    const Block* block
    const char* data
    uint64_t size
    const uint32_t* offsets
    const uint32_t* deltas
    uint64_t first_seq
    uint32_t slots
    int state


cdef struct AheadQueue:
    pthread_mutex_t lock
    pthread_cond_t changed
    AheadBlock blocks[AHEAD_MAX]
    uint64_t added
    uint64_t begun
    uint64_t taken
    uint64_t salt
    bint stopping


cdef class AheadReader:
    cdef AheadQueue queue
    cdef pthread_t thread
    cdef bint started
    cdef void add(self, const Block* block) noexcept
    cdef bint holds(self, const Block* block) noexcept
