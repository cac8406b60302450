# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport Block
from storage._cipher cimport StreamKey
from storage._views cimport Memory

cdef enum:
    FRAME_SIZE = 64 << 10       # a frame ends with the first record that reaches it
    BLOCK_FRAME_HEAD = 32
    HOT_FRAMES = 8


# The records of one frame, uncompressed and in the clear.
cdef class FrameMemory(Memory):
    cdef uint64_t group
    cdef uint64_t number
    cdef uint32_t layout
    cdef uint32_t start         # in the unframed block
    cdef uint32_t end
    cdef int unwritten          # erased here and not yet in the file
    cdef bint passing           # only a visit saw it: no view of it outlives that


cdef class FrameCache:
    cdef dict frames            # (group, number, layout, start) -> FrameMemory, longest unused first
    cdef list hot
    cdef list retired           # not in the cache any more, but views of them may be
    cdef readonly size_t bytes
    cdef readonly size_t bytes_max
    cdef readonly uint64_t hits
    cdef readonly uint64_t loads
    cdef int visiting
    cdef FrameMemory find(self, uint64_t group, const Block* block, uint32_t start)
    cdef FrameMemory hot_frame(self, uint64_t group, const Block* block, uint32_t offset)
    cdef int keep(self, FrameMemory frame) except -1
    cdef int follow(self, uint64_t group, const Block* block, uint32_t before) except -1
    cdef Memory holder_of(self, const char* at)
    cdef int end_views(self) except -1
    cdef uint64_t used_before       # hits and loads as of the last `rest`
    cdef int rest(self) except -1
    cdef int drop(self) except -1


cdef int frame_of(const Block* block, uint32_t offset) noexcept nogil
cdef FrameMemory load_frame(object map, const char* data, size_t size, uint64_t position, uint64_t group,
                            uint64_t number, uint64_t salt, StreamKey key)
cdef uint32_t check_frame_at(const char* data, size_t size, uint64_t position, uint64_t salt) noexcept nogil
cdef bytes encode_frame(const char* records, uint32_t size, uint32_t count, uint32_t start, int codec,
                        uint64_t group, uint64_t number, uint64_t salt, StreamKey key)
