# cython: language_level=3
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from storage._block cimport Block, BlockJob, Extent
from storage._frames cimport FrameMemory
from storage._record cimport Record, RecordVisit
from storage._rescan cimport ScanningTable
from storage._workshop cimport Workshop


cdef class BlockTable(ScanningTable):
    cdef public bint locked             # no key opens it: its bytes can be carried over, not read
    cdef readonly uint64_t floor        # all below is gone
    cdef Workshop shop
    cdef Block** blocks
    cdef readonly size_t block_count
    cdef size_t block_room
    cdef Block* active
    cdef size_t hint
    cdef Extent* pending
    cdef size_t pending_head
    cdef size_t pending_count
    cdef size_t pending_room
    cdef bint left                      # the stream was deleted: nothing is written for it any more
    cdef Block* find_block(self, uint64_t seq) noexcept nogil
    cdef size_t block_index_from(self, uint64_t seq) noexcept nogil
    cdef int need_index(self, Block* block) except -1
    cdef int need_map(self, Block* block) except -1
    cdef int wait_for_map(self, Block* block) except -1
    cdef bint needs_this_map(self, const Block* block) noexcept
    cdef bint may_let_go(self, const Block* block) noexcept
    cdef void let_go_map(self, Block* block) noexcept
    cdef int retire_map(self, Block* block) except -1
    cdef const char* locate(self, Block* block, uint32_t slot) except? NULL
    cdef FrameMemory frame_at(self, Block* block, uint32_t offset)
    cdef int check_frames(self, const Block* block) except -1
    cdef int visit_blocks(self, uint64_t first, RecordVisit step, void* context) except -1
    cdef int show(self, const char* at, Record* out) except -1
    cdef int adopt_footer(self, Block* block, const Block* footer) except -1
    cdef int frames_moved(self, Block* block) except -1
    cdef int note_unreadable(self, Block* block) except -1


cdef BlockJob* new_job(int kind, BlockTable owner) except NULL
cdef bytes dead_bytes(const Block* block)


cdef inline bint is_dead(const Block* block, uint32_t slot) noexcept nogil:
    return slot >> 3 < block.dead_room and block.dead_bits[slot >> 3] & (1 << (slot & 7)) != 0
