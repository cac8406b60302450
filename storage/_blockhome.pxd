# cython: language_level=3
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from storage._block cimport Block, BlockFile, BlockJob, Extent, OpenFiles
from storage._commitlog cimport Chunk, CommitLog, Frame, LogGroup
from storage._fs cimport FileCalls, Files
from storage._record cimport Record, RecordHome, RecordIndexer


# What the homes of one data directory share: the log, and the batch that is being built.
cdef class Workshop:
    cdef Files files
    cdef CommitLog log          # None while replaying
    cdef OpenFiles open_files
    cdef readonly list touched  # homes with work in the open batch
    cdef BlockJob** after       # jobs to queue behind the open batch's writes
    cdef size_t after_count
    cdef size_t after_room
    cdef readonly uint32_t block_size_min
    cdef readonly uint32_t block_size_max
    cdef uint64_t tick
    cdef object candidates      # (home, block number) that became mostly dead
    cdef object in_flight       # lists of chunks, a list for each batch not applied yet
    cdef Chunk chunk_of(self, const char* at)
    cdef readonly size_t maps_open
    cdef int queue_after(self, BlockJob* job) except -1


cdef class BlockHome(RecordHome):
    cdef readonly str path
    cdef readonly uint64_t group
    cdef readonly uint64_t salt
    cdef readonly uint64_t floor        # all below is gone
    cdef readonly uint64_t durable_seq  # last sequence of the newest durable batch
    cdef readonly list lost             # [first, last] ranges that are damaged
    cdef readonly list damage           # sentences about it
    cdef readonly uint64_t checkpoint_index
    cdef public object snapshot_source  # () -> bytes | None: the logic's snapshot for a checkpoint
    cdef readonly bytes snapshot        # as read from the state, for the logic to restore; then None
    cdef readonly LogGroup log_group
    cdef Workshop shop
    cdef Block** blocks
    cdef readonly size_t block_count
    cdef size_t block_room
    cdef Block* active
    cdef size_t hint
    cdef uint64_t next_number
    cdef uint64_t last_checksum
    cdef Extent* pending
    cdef size_t pending_head
    cdef size_t pending_count
    cdef size_t pending_room
    cdef uint64_t* forgets
    cdef size_t forget_count
    cdef size_t forget_room
    cdef bint floor_dirty
    cdef bint touched
    cdef bint replaying
    cdef set gone                       # sequences that the replay saw deleted
    cdef bint torn                      # a frame of this group is missing from the log's torn end
    cdef bint gap                       # a frame is missing; what it held may be lost
    cdef bint index_stale               # the indexer could not be told what went
    cdef public RecordIndexer indexer
    cdef public bint checkpoint_wanted
    cdef public bint checkpoint_running

    cdef int touch(self) except -1
    cdef Block* open_block(self, uint64_t first_seq, uint64_t size) except NULL
    cdef int seal_active(self) except -1
    cdef int place(self, const Record* record, uint32_t size, const char* encoded, uint64_t checksum) except -1
    cdef int add_extent(self, Block* block, uint32_t at, uint32_t size, const char* data) except -1
    cdef Block* find_block(self, uint64_t seq) noexcept nogil
    cdef size_t block_index_from(self, uint64_t seq) noexcept nogil
    cdef int need_index(self, Block* block) except -1
    cdef int need_map(self, Block* block) except -1
    cdef void let_go_map(self, Block* block) noexcept
    cdef int scan_block(self, Block* block) except -1
    cdef const char* locate(self, Block* block, uint32_t slot) except? NULL
    cdef int mark_dead(self, Block* block, uint32_t slot) except -1
    cdef int shorten(self, Block* block, uint32_t slot, uint64_t seq) except -1
    cdef int adopt_footer(self, Block* block, const Block* footer) except -1
    cdef int unindex_range(self, uint64_t first, uint64_t last) except -1
    cdef int end_replay(self) except -1
    cdef int compact(self, uint64_t number) except -1
    cdef int take_rewritten(self, BlockJob* job) except -1
    cdef int remove_block(self, size_t index) except -1
    cdef int queue_erase(self, Block* block, uint32_t slot) except -1
    cdef int flush_forgets(self) except -1
    cdef int close_batch(self) except -1
    cdef size_t copy_extents(self, uint64_t ticket, Extent* out) except? 0
    cdef void applied(self, uint64_t ticket) noexcept
    cdef int job_done(self, BlockJob* job) except -1
    cdef BlockJob* checkpoint_job(self, uint64_t segment, bint clean) except NULL
    cdef int replay_frame(self, const Frame* frame) except -1
    cdef int replay_records(self, const char* at, uint64_t size) except -1
    cdef int note_lost(self, uint64_t first, uint64_t last, str what) except -1
    cdef int apply_forget(self, uint64_t seq) except -1
    cdef int apply_drop(self, uint64_t seq) except -1
    cdef int apply_cut(self, uint64_t seq) except -1
    cdef int salvage(self) except -1
    cdef int forget_unreadable(self, uint64_t seq, Block* block) except -1
    cdef int note_unreadable(self, Block* block) except -1
    cdef int take_state(self, bytes content) except -1
    cdef int resume_active(self, Block* block) except -1
    cdef int rebuild_block(self, uint64_t number, str path) except -1
    cdef int rescan(self, Block* block) except -1
    cdef int erase_torn(self, Block* block, uint64_t seq) except -1
    cdef int replay_erase(self, uint64_t seq) except -1
