# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from storage._disk cimport DiskThread, Job
from storage._fs cimport FileCalls, FileMap

cdef enum:
    FRAME_HEAD = 40
    SEGMENT_HEAD = 64
    FRAME_RECORDS = 1
    FRAME_FORGET = 2
    FRAME_ERASE = 3
    FRAME_DROP = 4
    FRAME_CUT = 5
    FRAME_MARK = 6
    FRAME_ENTRY = 7
    FRAME_GONE = 8


cdef struct Segment:
    int fd
    uint64_t number
    uint64_t size
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


# The log's view of one stream or raft group.
cdef class LogGroup:
    cdef readonly uint64_t group
    cdef readonly uint64_t index            # of the last frame begun
    cdef readonly uint64_t first_segment    # oldest segment that this group still needs; 0: none


cdef class CommitLog:
    cdef readonly str path
    cdef readonly bint durable              # each batch is synced
    cdef readonly uint64_t ticket           # of the open batch
    cdef readonly uint64_t written_ticket   # highest batch whose writes are done
    cdef readonly uint64_t position         # where the next frame goes
    cdef readonly uint64_t durable_position
    cdef readonly uint64_t backlog_bytes    # handed to the disk and not yet reaped
    cdef readonly object segments_in_use    # numbers, oldest first
    cdef DiskThread disk
    cdef object files
    cdef bytes identity
    cdef uint64_t salt
    cdef uint64_t segment_size
    cdef int free_segments_max
    cdef list spare                         # paths of retired segments
    cdef dict open_segments                 # number -> address of its Segment
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
    cdef void close_files(self) noexcept
    cdef int rotate(self) except -1
    cdef int end_segment(self) except -1
    cdef list take_pieces(self)
    cdef int start_chunk(self, size_t size) except -1
    cdef int send_piece(self, uint64_t ticket) except -1
    cdef uint64_t submit(self) except? 0
    cdef int sync(self) except -1
    cdef int reap(self) except -1
    cdef int retire(self, uint64_t before) except -1


# One valid frame found by a replay.
cdef struct Frame:
    uint64_t group
    uint64_t index
    uint64_t position
    const char* payload
    uint32_t size
    uint8_t kind
    uint8_t after_damage    # 0: in sequence; 1: behind a torn end; 2: behind proven damage


cdef class Replay:
    cdef Frame* frames
    cdef readonly size_t count
    cdef readonly uint64_t highest_segment
    cdef readonly list damage       # (path, offset, what)
    cdef readonly list paths
    cdef list maps
    cdef size_t capacity
    cdef readonly uint64_t durable_position
    cdef int add(self, const char* at, uint64_t position) except -1
    cdef int walk(self, FileMap file, uint64_t number, uint64_t salt, str path) except -1
