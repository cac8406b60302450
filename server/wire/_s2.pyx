# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""S2 blocks (Snappy with repeated offsets and larger blocks) decoded, and CRC-32C.

Contract. `decode_block` takes any bytes: what is no block, or is longer than the caller allows, is
a ValueError and never a read or write outside. `crc32c` is the checksum of Snappy's and S2's frames.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef uint32_t TABLES[8][256]


cdef void make_tables() noexcept:
    cdef uint32_t value
    cdef int i, k
    for i in range(256):
        value = i
        for k in range(8):
            value = (value >> 1) ^ (<uint32_t>0x82F63B78u if value & 1 else <uint32_t>0)
        TABLES[0][i] = value
    for i in range(256):
        for k in range(1, 8):
            TABLES[k][i] = (TABLES[k - 1][i] >> 8) ^ TABLES[0][TABLES[k - 1][i] & 0xFF]


make_tables()


cdef uint32_t checksum(const uint8_t* data, size_t size) noexcept nogil:
    cdef uint32_t value = ~<uint32_t>0
    cdef uint64_t eight
    while size >= 8:
        memcpy(&eight, data, 8)
        eight ^= value
        value = (
            TABLES[7][eight & 0xFF] ^ TABLES[6][(eight >> 8) & 0xFF]
            ^ TABLES[5][(eight >> 16) & 0xFF] ^ TABLES[4][(eight >> 24) & 0xFF]
            ^ TABLES[3][(eight >> 32) & 0xFF] ^ TABLES[2][(eight >> 40) & 0xFF]
            ^ TABLES[1][(eight >> 48) & 0xFF] ^ TABLES[0][eight >> 56]
        )
        data += 8
        size -= 8
    while size:
        value = (value >> 8) ^ TABLES[0][(value ^ <uint32_t>data[0]) & 0xFF]
        data += 1
        size -= 1
    return ~value


def crc32c(bytes data not None):
    return checksum(<const uint8_t*>PyBytes_AS_STRING(data), len(data))


cdef size_t little(const uint8_t* at, int count) noexcept nogil:
    cdef size_t value = 0
    cdef int i
    for i in range(count):
        value |= <size_t>at[i] << (8 * i)
    return value


cdef bint decode(const uint8_t* src, size_t size, uint8_t* dst, size_t room) noexcept nogil:
    """Whether `src` is a block of exactly `room` bytes."""
    cdef size_t s = 0, d = 0, offset = 0, length, found
    cdef int extra
    cdef uint8_t tag
    while s < size:
        tag = src[s]
        s += 1
        length = tag >> 2
        if tag & 3 == 0:
            if length >= 60:
                extra = <int>length - 59
                if size - s < <size_t>extra:
                    return False
                length = little(src + s, extra)
                s += extra
            length += 1
            if length > size - s or length > room - d:
                return False
            memcpy(dst + d, src + s, length)
            s += length
            d += length
            continue
        if tag & 3 == 1:
            if s == size:
                return False
            found = (<size_t>(tag & 0xE0) << 3) | src[s]
            s += 1
            length &= 7
            if found:
                offset = found
            elif length >= 5:
                extra = <int>length - 4
                if size - s < <size_t>extra:
                    return False
                length = little(src + s, extra) + (4 if extra == 1 else 256 if extra == 2 else 65536)
                s += extra
            length += 4
        else:
            extra = 2 if tag & 3 == 2 else 4
            if size - s < <size_t>extra:
                return False
            offset = little(src + s, extra)
            s += extra
            length += 1
        if offset == 0 or offset > d or length > room - d:
            return False
        if offset >= length:
            memcpy(dst + d, dst + d - offset, length)
            d += length
        else:
            while length:
                dst[d] = dst[d - offset]
                d += 1
                length -= 1
    return d == room


def decode_block(bytes block not None, size_t size_max):
    cdef const uint8_t* src = <const uint8_t*>PyBytes_AS_STRING(block)
    cdef size_t size = len(block), room = 0, at = 0
    cdef int shift = 0
    cdef bytes found
    while True:
        if at == size or shift > 28:
            raise ValueError("no S2 block")
        room |= <size_t>(src[at] & 0x7F) << shift
        at += 1
        if src[at - 1] < 0x80:
            break
        shift += 7
    if room > size_max:
        raise ValueError("an S2 block is too long")
    found = PyBytes_FromStringAndSize(NULL, room)
    if not decode(src + at, size - at, <uint8_t*>PyBytes_AS_STRING(found), room):
        raise ValueError("an S2 block is damaged")
    return found
