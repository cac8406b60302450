# cython: language_level=3
"""The times of a footer: of each 256 slots the lowest and the highest (FORMAT.md, 3)."""
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint32_t, uint64_t

from storage._codec cimport KIND_SKIP, load64, store64


cdef inline uint32_t times_runs(uint32_t slots) noexcept nogil:
    return (slots >> 8) + (1 if slots & 255 else 0)


cdef inline size_t times_size(uint32_t slots) noexcept nogil:
    return <size_t>times_runs(slots) * 16


cdef inline void clear_times(char* out, uint32_t slots) noexcept nogil:
    """None has a message: lower than low, higher than high."""
    cdef uint32_t run
    for run in range(times_runs(slots)):
        store64(out + <size_t>run * 16, <uint64_t>INT64_MAX)
        store64(out + <size_t>run * 16 + 8, <uint64_t>INT64_MIN)


cdef inline void note_time(char* out, uint32_t slot, const char* record) noexcept nogil:
    cdef int64_t ts_ns = <int64_t>load64(record + 16)
    out += <size_t>(slot >> 8) * 16
    if record[4] == KIND_SKIP:
        return
    if ts_ns < <int64_t>load64(out):
        store64(out, <uint64_t>ts_ns)
    if ts_ns > <int64_t>load64(out + 8):
        store64(out + 8, <uint64_t>ts_ns)
