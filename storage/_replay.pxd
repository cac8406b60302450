# cython: language_level=3
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from storage._fs cimport FileMap


# One valid frame found by a replay.
cdef struct Frame:
    uint64_t group
    uint64_t index
    uint64_t position
    const char* payload
    uint32_t size
    uint8_t kind
    uint8_t after_damage    # 0: in sequence; 1: behind a torn end; 2: behind proven damage
    uint8_t goes_on         # counts only with the group's next frame


cdef class Replay:
    cdef Frame* frames
    cdef readonly size_t count
    cdef readonly uint64_t highest_segment
    cdef readonly size_t headed         # segments whose header holds
    cdef readonly list damage       # (path, offset, what)
    cdef readonly list paths
    cdef dict maps                  # path -> FileMap
    cdef list mended                # bytes of frames that were put together again
    cdef dict marks                 # number of a finished segment -> where its mark is
    cdef readonly dict erased       # group -> {sequence: seed}
    cdef uint64_t salt
    cdef bytes identity
    cdef size_t capacity
    cdef readonly uint64_t durable_position
    cdef readonly uint64_t damaged_position     # the last place that does not hold and was durable; 0: none
    cdef int add(self, const char* at, uint64_t position) except -1
    cdef bytes mend_frame(self, FileMap file, uint64_t at, uint64_t room, dict salts)
    cdef int walk(self, FileMap file, uint64_t number, uint64_t salt, str path) except -1
    cdef int keep_torn(self, str path, char* to, object groups) except -1
