# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport Block
from storage._blocktable cimport BlockTable
from storage._rewrite cimport Rewrite
from storage._workshop cimport Workshop


cdef class FramingTable(BlockTable):
    cdef bint touched
    cdef public int codec               # what sealed blocks are compressed with; 0: they are not
    cdef uint64_t sealed_below          # blocks below this number are sealed in a durable checkpoint
    cdef int rewrites                   # blocks being rewritten: no checkpoint meanwhile
    cdef readonly list unframed         # numbers of sealed blocks that wait for a checkpoint, then for the pool
    cdef list put_off                   # numbers of mostly dead ones whose rewrite failed: after the next checkpoint
    cdef set queued                     # numbers of those that wait for the pool
    cdef dict swapping                  # block number -> the Rewrite whose file is about to be put in place
    cdef public bint checkpoint_wanted

    cdef int touch(self) except -1
    cdef bint wants_frames(self, const Block* block) noexcept
    cdef Block* block_numbered(self, uint64_t number) noexcept
    cdef bint rewritable(self, const Block* block) noexcept
    cdef int queue_rewrite(self, uint64_t number) except -1
    cdef bint need_footer(self, Block* block) except -1
    cdef int put_off_rewrite(self, const Block* block, int problem) except -1
    cdef Rewrite start_rewrite(self, uint64_t number)
    cdef int finish_rewrite(self, Rewrite rewrite) except -1
    cdef int end_rewrite(self, Block* block) except -1
    cdef int wait_for_checkpoint(self, uint64_t number) except -1
    cdef int frame_sealed(self) except -1
    cdef int erase_in_frame(self, Block* block, uint32_t slot, uint64_t seed) except -1
    cdef int erase_in_fresh(self, Block* block, uint64_t seq, uint64_t seed) except -1
    cdef int queue_splice(self, Block* block, list changed) except -1
    cdef int queue_erase(self, Block* block, uint32_t slot, uint64_t seed) except -1
    cdef int queue_erased(self, Block* block, uint64_t seq, uint64_t offset, bytes content) except -1
