# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport Block, Extent
from storage._framing cimport FramingTable
from storage._commitlog cimport LogGroup
from storage._record cimport Record


# The part of a BlockHome that writes.
cdef class WritingTable(FramingTable):
    cdef readonly uint64_t checkpoint_index
    cdef readonly bytes fresh_meta      # on its way to the meta file; None: that has it
    cdef bint unnamed                   # its directory's name does not last yet
    cdef uint64_t meta_writes           # of the meta file since it was synced
    cdef readonly LogGroup log_group
    cdef uint64_t next_number
    cdef uint64_t last_checksum
    cdef uint64_t* forgets
    cdef size_t forget_count
    cdef size_t forget_room
    cdef bint floor_dirty
    cdef readonly dict erasures         # while replaying: block number -> {sequence: seed}, to be finished
    cdef bint owes_erasures             # what a start cannot erase without the stream's key
    cdef bint waits_for_blocks          # in the queue of what goes to the blocks soon
    cdef uint64_t handed_ticket         # the block thread has, or had, all up to this batch
    cdef Block* open_block(self, uint64_t first_seq, uint64_t size) except NULL
    cdef Block* begin_block(self, uint64_t number, uint64_t first_seq, uint32_t capacity) except NULL
    cdef Block* make_room(self, uint64_t seq, uint64_t size) except NULL
    cdef int seal_active(self) except -1
    cdef int place(self, const Record* record, uint32_t size, const char* encoded, uint64_t checksum) except -1
    cdef int add_extent(self, Block* block, uint32_t at, uint32_t size, const char* data) except -1
    cdef int flush_forgets(self) except -1
    cdef int keep_meta(self, bytes content) except -1
    cdef int leave(self) except -1
    cdef bint is_blank(self) noexcept
    cdef int flush_replayed(self) except -1
    cdef int close_batch(self) except -1
    cdef size_t copy_extents(self, uint64_t ticket, Extent* out) except? 0
    cdef void applied(self, uint64_t ticket) noexcept
