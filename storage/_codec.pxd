# cython: language_level=3
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from storage._record cimport Record

cdef extern from "_xxh64.h" nogil:
    uint64_t xxh64 "martlet_xxh64"(const char* data, size_t size, uint64_t seed) noexcept

cdef enum:
    RECORD_FIXED = 36       # a record without subject, headers and message
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


cdef inline void store64(char* at, uint64_t value) noexcept nogil:
    memcpy(at, &value, 8)


cdef inline void store32(char* at, uint32_t value) noexcept nogil:
    memcpy(at, &value, 4)


cdef inline void store16(char* at, uint16_t value) noexcept nogil:
    memcpy(at, &value, 2)


cdef inline uint32_t cipher_room(const char* at) noexcept nogil:
    """What encryption added to the record at `at`: nonce and tag."""
    return 28 if at[5] else 0


cdef inline uint64_t encoded_size(const Record* record) noexcept nogil:
    if record.skip_count:
        return RECORD_FIXED + 8
    return <uint64_t>RECORD_FIXED + record.subject_len + record.hdr_len + record.msg_len


cdef inline uint64_t file_counted_size(const Record* record) noexcept nogil:
    cdef uint64_t size = <uint64_t>30 + record.subject_len + record.msg_len
    return size + 4 + record.hdr_len if record.hdr_len else size


cdef void encode_record(char* out, const Record* record, uint64_t salt) noexcept nogil
cdef void erase_record(char* at, uint64_t seed, uint64_t salt) noexcept nogil
cdef uint32_t check_record(const char* at, uint64_t room, uint64_t salt) noexcept nogil
cdef uint32_t shape_of_record(const char* at, uint64_t room) noexcept nogil
cdef void view_record(const char* at, Record* out) noexcept nogil
