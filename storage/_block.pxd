# cython: language_level=3
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from storage._disk cimport Job
from storage._fs cimport FileCalls

cdef enum:
    BLOCK_HEAD = 64
    TRAILER_SIZE = 128
    BLOCK_ROW_SIZE = 112
    BLOCK_SEALED = 1
    BLOCK_FRAMED = 2
    BLOCK_SPARSE = 4
    BLOCK_HAS_DEAD = 8
    BLOCK_CUT = 16          # the row, not the footer, tells where it ends
    BLOCK_UNREADABLE = 32   # the file is missing or not ours; reported once
    BLOCK_ENCRYPTED = 256   # holds no record in the clear
    BLOCK_GONE = 128        # in memory only: removed, its jobs may still be under way
    BLOCK_SWAPPING = 512    # in memory only: a framed file is about to replace this one
    BLOCK_REWRITING = 64    # in memory only: a compaction is under way
    BLOCK_STUCK = 2048      # in memory only: a rewrite found records that do not hold
    BLOCK_BAD_HEAD = 1024   # in memory only: the header does not hold, the records may


# The files of blocks that are written to, and of those sealed since. Only the block thread touches it.
cdef struct OpenFiles:
    BlockFile* newest
    BlockFile* oldest
    int count
    int count_max
    SealedFile* sealed          # not synced yet, oldest first (`_sealed`)
    int sealed_count


cdef struct SealedFile:
    int fd
    uint64_t group
    uint64_t number
    SealedFile* next


cdef struct BlockFile:
    int fd
    bint made               # the file is there
    bint written            # to, by this process
    uint32_t capacity
    char* path
    char* directory
    char head[64]
    BlockFile* newer
    BlockFile* older
    OpenFiles* list


cdef struct Block:
    uint64_t number
    uint64_t first_seq
    uint64_t last_seq
    int64_t min_ts
    int64_t max_ts
    uint64_t counted
    uint64_t last_checksum
    uint64_t prior_checksum
    uint32_t data_end
    uint32_t capacity
    uint32_t slots
    uint32_t slot_room
    uint32_t messages
    uint32_t dead
    uint32_t skips
    uint32_t generation
    uint32_t flags
    uint32_t written        # bytes of the file that hold what they should, as far as reading goes
    uint32_t* offsets       # owned when index_owned, else in the map
    uint32_t* deltas        # NULL: dense
    bint index_owned
    uint8_t* dead_bits      # bit i: slot i is deleted
    uint32_t dead_room      # bytes of dead_bits
    BlockFile* file
    PyObject* map           # FileMap or bytes
    const char* data
    size_t data_size
    uint64_t used_at
    uint32_t frames         # of a framed block
    uint32_t* frame_table   # position and start of each frame; owned when index_owned, else in the map
    uint32_t layout         # in memory only: how often its records moved
    uint32_t erases         # in memory only: erases under way


cdef struct Extent:
    BlockFile* file
    Block* block
    uint32_t at
    uint32_t size
    const char* data
    uint64_t ticket


cdef enum:
    JOB_APPLY = 1
    JOB_SEAL = 2
    JOB_REMOVE = 3
    JOB_CHECKPOINT = 4
    JOB_ERASE = 5
    JOB_COMPACT = 6
    JOB_FRAME = 7           # a rewritten file to put in place
    JOB_SPLICE = 8          # one frame of it
    JOB_META = 9            # the stream's directory and its meta
    JOB_LEAVE = 10          # the files of a deleted stream go
    JOB_GROUP = 11          # a run of checkpoints
    JOB_CLOSE = 12          # a file that nothing is written to any more


# Work of the block thread. `owner` is a BlockHome or NULL, and referenced.
cdef struct BlockJob:
    Job job
    int kind
    PyObject* owner
    PyObject* keep          # what must stay alive until the job is done
    Block* block
    BlockFile* file
    OpenFiles* files        # the directory's
    uint64_t ticket
    uint64_t index
    uint64_t segment
    Extent* extents
    size_t count            # of extents
    bint sync_follows       # of an erase: the next job syncs the same file
    bint files_left         # of a deleted stream: it has its turn again
    bint keeps_states       # those that a checkpoint replaces are written anew by the next
    uint64_t salt
    uint64_t group
    char* path
    char* directory
    const char* data
    size_t size
    uint64_t at
    uint64_t seq
    int problem             # an errno: why work that can wait was not done; the disk is still trusted
    Block seal              # a copy of the block's fields and index pointers as of sealing


cdef BlockFile* new_block_file(str path, str directory, OpenFiles* files, Block* block,
                               uint64_t group, uint64_t salt, uint64_t prior_checksum) except NULL
cdef void free_block_file(BlockFile* file) noexcept
cdef int run_close(Job* job, const FileCalls* calls) noexcept nogil
cdef int run_apply(Job* job, const FileCalls* calls) noexcept nogil
cdef int write_fresh(const FileCalls* calls, const char* path, const char* data, size_t size, bint durable) noexcept nogil
cdef int run_erase(Job* job, const FileCalls* calls) noexcept nogil
cdef int need_block_file(BlockFile* file, const FileCalls* calls) noexcept nogil
cdef int write_through(BlockFile* file, const FileCalls* calls, const char* data, size_t size, uint64_t at) noexcept nogil
cdef void leave_open_files(BlockFile* file) noexcept nogil
cdef void close_block_file(BlockFile* file, const FileCalls* calls) noexcept nogil

cdef int begin_scan(const Block* block, Block* fresh) except -1
cdef void fill_hole(Block* fresh, uint32_t hole, uint32_t count, uint32_t delta) noexcept
cdef bint takes_slot(const Block* block, uint64_t seq) noexcept nogil
cdef int add_slot(Block* block, uint64_t seq, uint32_t offset) except -1
cdef int64_t find_slot(const Block* block, uint64_t seq) noexcept nogil
cdef int64_t slot_at_or_after(const Block* block, uint64_t seq) noexcept nogil
cdef void store_row(char* out, const Block* block) noexcept nogil
cdef void load_row(const char* at, Block* out) noexcept nogil
cdef void store_trailer(char* out, const Block* block, uint64_t group, uint32_t index_start,
                        uint32_t summary_start, uint32_t summary_size, bint complete,
                        uint64_t body_checksum, uint32_t frames, uint64_t salt) noexcept nogil
cdef int load_trailer(const char* data, size_t size, uint64_t group, uint64_t salt, Block* out,
                      uint32_t* index_start) noexcept nogil
cdef bint check_head(const char* data, size_t size, uint64_t group, uint64_t number) noexcept nogil
cdef bint head_is_whole(const char* data, size_t size) noexcept nogil
cdef void forget_index(Block* block) noexcept
cdef void free_block(Block* block) noexcept
