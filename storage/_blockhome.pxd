# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport Block, BlockJob
from storage._writing cimport WritingTable
from storage._record cimport RecordIndexer


cdef class BlockHome(WritingTable):
    cdef readonly uint64_t durable_seq  # last sequence of the newest durable batch
    cdef public object snapshot_source  # () -> bytes | None: the logic's snapshot for a checkpoint
    cdef bint has_snapshot              # the newest checkpoint has one
    cdef uint64_t behind                # the log segment that DataDirectory counts it under
    cdef readonly bytes snapshot        # as read from the state, for the logic to restore; then None
    cdef set gone                       # sequences that the replay saw deleted
    cdef uint64_t cut_index             # of the newest cut's frame, until a checkpoint has it
    cdef list unended                   # addresses of frames whose end the replay has not come to
    cdef bint torn                      # a frame of this group is missing from the log's torn end
    cdef bint gap                       # a frame is missing; what it held may be lost
    cdef uint64_t gap_seq               # and what was known up to here came from frames before it
    cdef public RecordIndexer indexer
    cdef public bint checkpoint_running
    cdef bint has_own_states            # written since the start: none is in the clear that should not be

    cdef int mark_dead(self, Block* block, uint32_t slot) except -1
    cdef int shorten(self, Block* block, uint32_t slot, uint64_t seq) except -1
    cdef int compact(self, uint64_t number) except -1
    cdef int cut_again(self, Block* block) except -1
    cdef int try_index(self, Block* block) except -1
    cdef int take_rewritten(self, BlockJob* job) except -1
    cdef int remove_block(self, size_t index) except -1
    cdef int erase(self, uint64_t seq) except -1
    cdef int forget_damaged(self, uint64_t seq) except -1
    cdef int job_done(self, BlockJob* job) except -1
    cdef int checkpoint_done(self, const BlockJob* job) except -1
    cdef int apply_forget(self, uint64_t seq) except -1
    cdef int remove_dead_cut(self) except -1
    cdef int remove_dead(self, Block* block) except -1
    cdef int apply_drop(self, uint64_t seq) except -1
    cdef int apply_cut(self, uint64_t seq) except -1
    cdef int forget_unreadable(self, uint64_t seq, Block* block) except -1
