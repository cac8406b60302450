# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Walks over bytes without making columns: records of a block, frames of the commit log.

Contract: nothing is believed before its checksum held, and nothing outside of the given bytes is read.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyspark_jetstream._bytes cimport KIND_SKIP, RECORD_HEAD, check, load32, load64, shape_of, xxh64

cdef enum:
    FRAME_HEAD = 40
    FRAME_RECORDS = 1
    FRAME_MARK = 6
    FRAME_META = 10             # the highest kind there is
    FRAME_GOES_ON = 1           # in the byte behind the kind
    KIND_GOES_ON = 256          # the same, as part of a kind


def checksum(data, seed: int = 0) -> int:
    """XXH64 of `data`."""
    cdef const unsigned char[:] view = data
    return xxh64(<const char*>&view[0] if len(view) else NULL, <size_t>len(view), <uint64_t>seed)


def walk(const unsigned char[::1] data, uint64_t salt, size_t at, uint64_t last) -> tuple[int, int, int, int, int, int]:
    """Walk the valid records from `at` to sequence `last`.

    `(end, first sequence, last sequence, lowest time, highest time, messages)`; the first is 0 when
    there was none.
    """
    cdef const char* start = <const char*>&data[0] if len(data) else NULL
    cdef size_t size = len(data)
    cdef uint32_t length
    cdef uint64_t first = 0, seen = 0, seq, messages = 0
    cdef int64_t low = 0x7FFFFFFFFFFFFFFF, high = -0x7FFFFFFFFFFFFFFF, ts_ns
    while at < size:
        length = check(start + at, size - at, salt)
        seq = load64(start + at + 8) if length else 0
        if length == 0 or seq > last or (seen and seq <= seen):
            break
        first = first or seq
        seen = seq
        if start[at + 4] == KIND_SKIP:
            seen += load64(start + at + RECORD_HEAD) - 1
        else:
            ts_ns = <int64_t>load64(start + at + 16)
            low, high = min(low, ts_ns), max(high, ts_ns)
            messages += 1
        at += length
    return at, first, seen, low, high, messages


def has_encrypted(const unsigned char[::1] data) -> bool:
    """Whether any of the records, up to the first that is none, is encrypted."""
    cdef const char* start = <const char*>&data[0] if len(data) else NULL
    cdef size_t size = len(data), at = 0
    cdef uint32_t length
    while at < size:
        length = shape_of(start + at, size - at)
        if length == 0:
            return False
        if start[at + 5]:
            return True
        at += length
    return False


cdef uint64_t last_of_records(const char* at, uint64_t size) noexcept nogil:
    cdef uint64_t seen = 0
    cdef uint32_t length
    while size:
        length = shape_of(at, size)
        if length == 0:
            return seen
        seen = load64(at + 8)
        if at[4] == KIND_SKIP:
            seen += load64(at + RECORD_HEAD) - 1
        at += length
        size -= length
    return seen


def scan_log(bytes data, uint64_t base, uint64_t salt, size_t at, bint resync) -> tuple[list, int, bool]:
    """`(frames, where the next will be, whether the segment is finished)` from byte `at` on.

    `data` is the segment whose first byte has position `base`. A frame is (group, index, kind,
    payload); the kind has 256 added if it counts only with the group's next frame; of records frames
    the payload is their last sequence, 0 if there are none. With `resync` it looks
    behind what does not hold for the next frame; without, that is the end for now.
    """
    cdef const char* start = data
    cdef size_t size = len(data), total, behind = at
    cdef uint64_t payload
    cdef list frames = []
    while at + FRAME_HEAD <= size:
        total = load32(start + at)
        if start[at + 4] < FRAME_RECORDS or start[at + 4] > FRAME_META or total + FRAME_HEAD > size - at or (
                xxh64(start + at + FRAME_HEAD, total, xxh64(start + at, 32, salt + base + at))
                != load64(start + at + 32)):
            if not resync:
                break
            at += 8
            continue
        if start[at + 4] == FRAME_MARK:
            return frames, at + FRAME_HEAD, True
        if start[at + 4] == FRAME_RECORDS:
            add_records(frames, load64(start + at + 8), load64(start + at + 16),
                        FRAME_RECORDS | KIND_GOES_ON * (start[at + 5] & FRAME_GOES_ON),
                        last_of_records(start + at + FRAME_HEAD, total))
        else:
            frames.append((load64(start + at + 8), load64(start + at + 16),
                           <int>start[at + 4] | KIND_GOES_ON * (start[at + 5] & FRAME_GOES_ON),
                           start[at + FRAME_HEAD:at + FRAME_HEAD + total]))
        at = (at + total + FRAME_HEAD + 7) & ~<size_t>7
        behind = at
    return frames, behind, False


cdef int add_records(list frames, uint64_t group, uint64_t index, int kind, uint64_t last) except -1:
    """One entry for a run of records frames of one group; what goes on ends with the run, or goes on with it."""
    if frames:
        before = frames[len(frames) - 1]
        if before[0] == group and before[2] & ~KIND_GOES_ON == FRAME_RECORDS and before[1] == index - 1:
            frames[len(frames) - 1] = (group, index, kind, max(last, <uint64_t>before[3]))
            return 0
    frames.append((group, index, kind, last))
    return 0
