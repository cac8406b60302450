# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records as bytes (FORMAT.md, section 2): encode, check, view. Nothing here needs the GIL.

`check_record` is the only way in from a file: it believes nothing before the checksum held, and
reads nothing outside of `room`. An encrypted record (`at[5]` is not 0) is checked like any other.
"""
from libc.string cimport memcpy


cdef void encode_record(char* out, const Record* record, uint64_t salt) noexcept nogil:
    """Write `record` to `out`, which has room for `encoded_size(record)` bytes."""
    cdef uint32_t size = <uint32_t>encoded_size(record)
    cdef char* at = out + RECORD_HEAD
    store32(out, size)
    out[4] = KIND_SKIP if record.skip_count else KIND_MESSAGE
    out[5] = 0
    store64(out + 8, record.seq)
    store64(out + 16, <uint64_t>record.ts_ns)
    if record.skip_count:
        store16(out + 6, 0)
        store32(out + 24, 0)
        store64(at, record.skip_count)
    else:
        store16(out + 6, record.subject_len)
        store32(out + 24, record.hdr_len)
        memcpy(at, record.subject, record.subject_len)
        at += record.subject_len
        if record.hdr_len:
            memcpy(at, record.hdr, record.hdr_len)
            at += record.hdr_len
        if record.msg_len:
            memcpy(at, record.msg, record.msg_len)
    store64(out + size - 8, xxh64(out, size - 8, salt))


cdef void erase_record(char* at, uint64_t seed, uint64_t salt) noexcept nogil:
    """Turn the checked record at `at` into an erased one. The same seed gives the same bytes."""
    cdef uint32_t size = load32(at)
    cdef uint32_t done = RECORD_HEAD
    cdef uint32_t end = size - 8
    cdef uint64_t word
    at[4] = KIND_ERASED
    while done < end:
        seed += <uint64_t>0x9E3779B97F4A7C15
        word = (seed ^ (seed >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        word = (word ^ (word >> 27)) * <uint64_t>0x94D049BB133111EB
        word ^= word >> 31
        memcpy(at + done, &word, min(<uint32_t>8, end - done))
        done += 8
    store64(at + size - 8, xxh64(at, size - 8, salt))


cdef uint32_t shape_of_record(const char* at, uint64_t room) noexcept nogil:
    """Its size when the lengths fit each other and `room`, else 0. Says nothing about the content."""
    cdef uint32_t size
    if room < RECORD_FIXED:
        return 0
    size = load32(at)
    if size < RECORD_FIXED or size > room or size > RECORD_SIZE_MAX:
        return 0
    if at[4] < KIND_MESSAGE or at[4] > KIND_ERASED:
        return 0
    if <uint64_t>load16(at + 6) + load32(at + 24) + RECORD_FIXED + cipher_room(at) > size or at[5] & 0xFC:
        return 0
    if at[4] == KIND_SKIP and (size != RECORD_FIXED + 8 or at[5]):
        return 0
    return size


cdef uint32_t check_record(const char* at, uint64_t room, uint64_t salt) noexcept nogil:
    """Its size when it is whole and its checksum holds, else 0."""
    cdef uint32_t size = shape_of_record(at, room)
    if size and xxh64(at, size - 8, salt) != load64(at + size - 8):
        return 0
    return size


cdef void view_record(const char* at, Record* out) noexcept nogil:
    """Point `out` into the checked record at `at`. Of an encrypted one only the numbers mean anything."""
    cdef uint32_t size = load32(at) - cipher_room(at)
    out.seq = load64(at + 8)
    out.ts_ns = <int64_t>load64(at + 16)
    out.subject_len = load16(at + 6)
    out.hdr_len = load32(at + 24)
    out.skip_count = load64(at + RECORD_HEAD) if at[4] == KIND_SKIP else 0
    out.subject = at + RECORD_HEAD
    out.hdr = out.subject + out.subject_len
    out.msg = out.hdr + out.hdr_len
    out.msg_len = 0 if out.skip_count else size - RECORD_FIXED - out.subject_len - out.hdr_len


def checksum(data, seed: int = 0) -> int:
    """XXH64 of `data`."""
    cdef const unsigned char[:] view = data
    return xxh64(<const char*>&view[0] if len(view) else NULL, <size_t>len(view), <uint64_t>seed)


def encode(seq: int, ts_ns: int, subject: bytes, headers: bytes, message: bytes, salt: int) -> bytes:
    """One message record; for tests, tools and cold paths."""
    cdef Record record
    record.seq = seq
    record.ts_ns = ts_ns
    record.skip_count = 0
    record.subject, record.subject_len = subject, len(subject)
    record.hdr, record.hdr_len = headers, len(headers)
    record.msg, record.msg_len = message, len(message)
    out = bytearray(encoded_size(&record))
    encode_record(out, &record, salt)
    return bytes(out)


def encode_skip(seq: int, count: int, salt: int) -> bytes:
    """One skip record."""
    cdef Record record
    record.seq = seq
    record.ts_ns = 0
    record.skip_count = count
    out = bytearray(encoded_size(&record))
    encode_record(out, &record, salt)
    return bytes(out)


def decode(data: bytes, offset: int, salt: int) -> tuple | None:
    """`(size, kind, seq, ts_ns, subject, headers, message, skip_count)`, or None when it does not hold."""
    cdef Record record
    cdef const char* base = data
    cdef uint32_t size
    if offset < 0 or offset > len(data):
        return None
    size = check_record(base + <size_t>offset, len(data) - offset, salt)
    if not size:
        return None
    view_record(base + <size_t>offset, &record)
    return (size, base[<size_t>offset + 4], record.seq, record.ts_ns,
            record.subject[:record.subject_len], record.hdr[:record.hdr_len],
            record.msg[:record.msg_len], record.skip_count)
