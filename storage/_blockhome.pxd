# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from storage._block cimport Block, BlockJob, Extent
from storage._framing cimport FramingTable
from storage._workshop cimport Workshop
from storage._commitlog cimport LogGroup
from storage._record cimport Record, RecordIndexer


cdef class BlockHome(FramingTable):
    cdef readonly uint64_t durable_seq  # last sequence of the newest durable batch
    cdef readonly uint64_t checkpoint_index
    cdef public object snapshot_source  # () -> bytes | None: the logic's snapshot for a checkpoint
    cdef readonly bytes snapshot        # as read from the state, for the logic to restore; then None
    cdef readonly LogGroup log_group
    cdef uint64_t next_number
    cdef uint64_t last_checksum
    cdef uint64_t* forgets
    cdef size_t forget_count
    cdef size_t forget_room
    cdef bint floor_dirty
    cdef bint waits_for_blocks          # in the queue of what goes to the blocks soon
    cdef uint64_t handed_ticket         # the block thread has, or had, all up to this batch
    cdef set gone                       # sequences that the replay saw deleted
    cdef bint torn                      # a frame of this group is missing from the log's torn end
    cdef bint gap                       # a frame is missing; what it held may be lost
    cdef public RecordIndexer indexer
    cdef public bint checkpoint_running

    cdef Block* open_block(self, uint64_t first_seq, uint64_t size) except NULL
    cdef Block* begin_block(self, uint64_t number, uint64_t first_seq, uint32_t capacity) except NULL
    cdef Block* make_room(self, uint64_t seq, uint64_t size) except NULL
    cdef int seal_active(self) except -1
    cdef int place(self, const Record* record, uint32_t size, const char* encoded, uint64_t checksum) except -1
    cdef int add_extent(self, Block* block, uint32_t at, uint32_t size, const char* data) except -1
    cdef int mark_dead(self, Block* block, uint32_t slot) except -1
    cdef int shorten(self, Block* block, uint32_t slot, uint64_t seq) except -1
    cdef int compact(self, uint64_t number) except -1
    cdef int cut_again(self, Block* block) except -1
    cdef int take_rewritten(self, BlockJob* job) except -1
    cdef int remove_block(self, size_t index) except -1
    cdef int erase(self, uint64_t seq) except -1
    cdef int flush_forgets(self) except -1
    cdef int close_batch(self) except -1
    cdef size_t copy_extents(self, uint64_t ticket, Extent* out) except? 0
    cdef void applied(self, uint64_t ticket) noexcept
    cdef int job_done(self, BlockJob* job) except -1
    cdef int apply_forget(self, uint64_t seq) except -1
    cdef int apply_drop(self, uint64_t seq) except -1
    cdef int apply_cut(self, uint64_t seq) except -1
    cdef int forget_unreadable(self, uint64_t seq, Block* block) except -1
