# cython: language_level=3
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "_xxh64.h" nogil:
    uint64_t xxh64 "martlet_xxh64"(const char* data, size_t size, uint64_t seed) noexcept

cdef enum:
    RECORD_FIXED = 36
    RECORD_HEAD = 28
    RECORD_SIZE_MAX = 64 << 20
    KIND_MESSAGE = 1
    KIND_SKIP = 2
    KIND_ERASED = 3


cdef inline uint64_t load64(const char* at) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, at, 8)
    return value


cdef inline uint32_t load32(const char* at) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, at, 4)
    return value


cdef inline uint16_t load16(const char* at) noexcept nogil:
    cdef uint16_t value
    memcpy(&value, at, 2)
    return value


cdef inline uint32_t shape_of(const char* at, uint64_t room) noexcept nogil:
    """The record's size when its lengths fit each other and `room`, else 0."""
    cdef uint32_t size
    if room < RECORD_FIXED:
        return 0
    size = load32(at)
    if size < RECORD_FIXED or size > room or size > RECORD_SIZE_MAX:
        return 0
    if at[4] < KIND_MESSAGE or at[4] > KIND_ERASED:
        return 0
    if <uint64_t>load16(at + 6) + load32(at + 24) + RECORD_FIXED > size:
        return 0
    if at[4] == KIND_SKIP and size != RECORD_FIXED + 8:
        return 0
    return size


cdef inline uint32_t check(const char* at, uint64_t room, uint64_t salt) noexcept nogil:
    """Its size when it is whole and its checksum holds, else 0."""
    cdef uint32_t size = shape_of(at, room)
    if size and xxh64(at, size - 8, salt) != load64(at + size - 8):
        return 0
    return size
