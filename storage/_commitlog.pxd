# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from storage._codec cimport xxh64
from storage._disk cimport DiskThread, Job
from storage._fs cimport FileCalls

cdef enum:
    FRAME_HEAD = 40
    SEGMENT_HEAD = 64
    FRAME_RECORDS = 1
    FRAME_FORGET = 2
    FRAME_ERASE = 3
    FRAME_DROP = 4
    FRAME_CUT = 5
    FRAME_MARK = 6
    FRAME_GONE = 8
    FRAME_BLOCK = 9
    FRAME_META = 10
    FRAME_LAST = 10
    FRAME_GOES_ON = 1   # in the byte behind the kind: counts only with the group's next frame


cdef struct Segment:
    int fd
    uint64_t number
    uint64_t size
    uint64_t written    # only the log's thread: up to here the disk has no blocks that it would have to note as written
    uint64_t begun      # only the log's thread, in lazy mode: up to here the disk was told to write
    char* path
    char* old_path      # renamed from here when prepared; NULL: made anew
    char* directory
    char head[64]


cdef struct LogJob:
    Job job
    Segment* segment
    const char* data
    size_t size
    uint64_t offset
    uint64_t ticket     # of the batch that ends with this job, else 0
    uint64_t end        # position behind what this job wrote
    char mark[40]       # the bytes of a segment's last frame


cdef class Chunk:
    cdef char* data
    cdef size_t capacity
    cdef size_t used


# Where a frame with records begins, and the first sequence in it.
cdef struct Place:
    uint64_t seq
    uint64_t position


# One record whose copy in the log is to be overwritten.
cdef struct ScrubTarget:
    uint64_t group
    uint64_t seq
    uint64_t start      # offset of a frame at or before it; 0: search the bytes from `low` on
    uint64_t low
    uint64_t end        # of the frames: behind it the sequence may have come again
    uint64_t seed
    uint64_t salt
    char head[28]       # the record's


cdef struct ScrubJob:
    LogJob log
    char* path
    ScrubTarget* targets
    size_t count
    uint64_t base       # position of the segment's start
    uint64_t log_salt


cdef class CommitLog


# The log's view of one stream or raft group.
cdef class LogGroup:
    cdef readonly uint64_t group
    cdef readonly uint64_t index            # of the last frame begun
    cdef readonly uint64_t first_segment    # oldest segment that this group still needs; 0: none
    cdef uint64_t frame_position            # of the newest frame with records
    cdef uint64_t place_due                 # a frame from here on gets a place
    cdef Place* places                      # some of the frames, ascending in both fields
    cdef size_t place_count
    cdef size_t place_room
    cdef bint goes_on                       # what is written now counts as a whole or not at all
    cdef bint left_open                     # the last frame that was closed counts only with the next one
    cdef int note_place(self, uint64_t seq, CommitLog log) except -1
    cdef void cut_places(self, uint64_t seq) noexcept
    cdef uint64_t place_of(self, uint64_t seq) noexcept


cdef class CommitLog:
    cdef readonly str path
    cdef readonly bint durable              # each batch is synced
    cdef readonly uint64_t ticket           # of the open batch
    cdef readonly uint64_t written_ticket   # highest batch whose writes are done
    cdef readonly uint64_t position         # where the next frame goes
    cdef readonly uint64_t durable_position
    cdef readonly uint64_t backlog_bytes    # handed to the disk and not yet reaped
    cdef readonly uint64_t bytes_built      # all that was ever handed to it
    cdef readonly object segments_in_use    # numbers, oldest first
    cdef DiskThread disk
    cdef object files
    cdef bytes identity
    cdef uint64_t salt
    cdef uint64_t segment_size
    cdef int free_segments_max
    cdef list spare                         # paths of retired segments
    cdef dict open_segments                 # number -> address of its Segment
    cdef dict contents                      # segment number -> the path that has, or will have, its bytes
    cdef uint64_t recycled                  # number of the segment whose file the current one overwrites; 0: none
    cdef bint small                         # of the open batch: it may be written by the owner's thread
    cdef bint sync_wanted                   # lazy mode: the open batch must be synced all the same
    cdef list scrubbed                      # tickets of finished scrubs
    cdef Segment* current
    cdef Chunk chunk
    cdef size_t piece_start
    cdef LogGroup frame_group
    cdef size_t frame_at
    cdef int frame_kind
    cdef list pieces
    cdef bint unsynced
    cdef char* extend(self, LogGroup group, int kind, size_t size) except NULL
    cdef int close_frame(self) except -1

    cdef inline uint64_t frame_start(self) noexcept:
        """The position of the newest frame, while nothing was submitted behind it."""
        return self.position + (self.frame_at - self.piece_start)
    cdef inline size_t open_bytes(self) noexcept:
        """Of the open batch, not yet with the disk's thread."""
        return 0 if self.chunk is None else self.chunk.used - self.piece_start

    cdef void close_files(self) noexcept
    cdef int rotate(self) except -1
    cdef int end_segment(self) except -1
    cdef list take_pieces(self)
    cdef int start_chunk(self, size_t size) except -1
    cdef int send_piece(self, uint64_t ticket) except -1
    cdef uint64_t submit(self) except? 0
    cdef int sync(self) except -1
    cdef int scrub(self, list wanted, uint64_t ticket) except -1
    cdef uint64_t oldest_content(self) except? 0
    cdef int reap(self) except -1
    cdef int retire(self, uint64_t before) except -1


cdef inline uint64_t frame_checksum(const char* frame, size_t size, uint64_t seed) noexcept nogil:
    """Over the header's first 32 bytes and the payload, which the checksum field stands between."""
    return xxh64(frame + FRAME_HEAD, size, xxh64(frame, 32, seed))
