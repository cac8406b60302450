# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The few message headers a store must understand: time to live, delete marker, rollup."""
from libc.string cimport memcmp, memchr

cdef int64_t SECOND_NS = 1_000_000_000
cdef int64_t TTL_MAX_NS = 0x7FFFFFFFFFFFFFFF // 4


cdef const char* line_end_from(const char* at, const char* end) noexcept nogil:
    """Where the line ends. Only CRLF ends one, as for whoever checks a message before it is stored."""
    while True:
        at = <const char*>memchr(at, 13, end - at)
        if at == NULL or at + 1 == end:
            return end
        if at[1] == 10:
            return at
        at += 1


cdef const char* find_header(
    const char* block, uint32_t block_len, const char* name, uint32_t name_len, uint32_t* value_len
) noexcept nogil:
    """The value of the first field `name` (exact case) without the blanks around it, or NULL."""
    cdef const char* at = block
    cdef const char* end = block + block_len
    cdef const char* line_end
    while True:
        at = <const char*>memchr(at, 10, end - at)
        if at == NULL or end - at <= name_len + 1:
            return NULL
        at += 1
        if at - block >= 2 and (at - 2)[0] == 13 and at[name_len] == 58 and memcmp(at, name, name_len) == 0:
            break
    at += name_len + 1
    line_end = line_end_from(at, end)
    while at < line_end and at[0] == 32:
        at += 1
    while line_end > at and (line_end - 1)[0] == 32:
        line_end -= 1
    value_len[0] = <uint32_t>(line_end - at)
    return at


cdef int64_t unit_ns(const char** at, const char* end) noexcept nogil:
    """The unit of a Go duration at `at`, which moves behind it; 0: no unit."""
    cdef const char* text = at[0]
    cdef int64_t unit = 0
    cdef int length = 1
    if text == end:
        return 0
    if text[0] == 104:
        unit = 3600 * SECOND_NS
    elif text[0] == 109 and text + 1 < end and text[1] == 115:
        unit = 1_000_000
        length = 2
    elif text[0] == 109:
        unit = 60 * SECOND_NS
    elif text[0] == 115:
        unit = SECOND_NS
    elif text + 1 < end and text[1] == 115 and (text[0] == 110 or text[0] == 117):
        unit = 1 if text[0] == 110 else 1000
        length = 2
    elif end - text >= 3 and text[0] == <char>0xC2 and text[1] == <char>0xB5 and text[2] == 115:
        unit = 1000
        length = 3
    at[0] = text + length
    return unit


cdef int64_t parse_duration(const char* text, uint32_t length) noexcept nogil:
    """A Go duration ("1h30m", "2.5s") in nanoseconds; -1: it is none, or too long."""
    cdef const char* at = text
    cdef const char* end = text + length
    cdef int64_t total = 0, whole, unit
    cdef double fraction, scale
    cdef bint digits
    if at == end:
        return -1
    while at < end:
        whole = 0
        fraction = 0
        scale = 0.1
        digits = False
        while at < end and 48 <= at[0] <= 57:
            if whole > TTL_MAX_NS // 10 - 1:
                return -1
            whole = whole * 10 + (at[0] - 48)
            digits = True
            at += 1
        if at < end and at[0] == 46:
            at += 1
            while at < end and 48 <= at[0] <= 57:
                fraction += (at[0] - 48) * scale
                scale *= 0.1
                digits = True
                at += 1
        unit = unit_ns(&at, end)
        if not digits or unit == 0 or whole > (TTL_MAX_NS - total) // unit:
            return -1
        total += whole * unit + <int64_t>(fraction * unit + 0.5)
    return total


cdef int64_t parse_ttl(const char* text, uint32_t length) noexcept nogil:
    """Whole seconds, a duration of a second or more, or "never" (-1); 0: not a time to live."""
    cdef uint32_t i
    cdef int64_t seconds = 0, duration
    cdef const char* never = b"never"
    if length == 5:
        i = 0
        while i < 5 and (text[i] | 32) == never[i]:
            i += 1
        if i == 5:
            return -1
    duration = parse_duration(text, length)
    if duration >= 0:
        # Parts of a second do not count.
        return duration // SECOND_NS * SECOND_NS
    for i in range(length):
        if not 48 <= text[i] <= 57 or seconds > TTL_MAX_NS // SECOND_NS // 10:
            return 0
        seconds = seconds * 10 + (text[i] - 48)
    return seconds * SECOND_NS


cdef int64_t ttl_of(const char* block, uint32_t block_len) noexcept nogil:
    cdef uint32_t length = 0
    cdef const char* value = find_header(block, block_len, b"Nats-TTL", 8, &length)
    return 0 if value == NULL else parse_ttl(value, length)


cdef bint is_marker(const char* block, uint32_t block_len) noexcept nogil:
    """A marker says that a subject's last message went; a purged key says the same."""
    cdef uint32_t length = 0
    cdef const char* value
    if find_header(block, block_len, b"Nats-Marker-Reason", 18, &length) != NULL and length:
        return True
    value = find_header(block, block_len, b"KV-Operation", 12, &length)
    return value != NULL and length == 5 and memcmp(value, b"PURGE", 5) == 0


cdef bint is_rollup(const char* block, uint32_t block_len) noexcept nogil:
    cdef uint32_t length = 0
    return find_header(block, block_len, b"Nats-Rollup", 11, &length) != NULL and length > 0


def ttl_ns(bytes headers not None):
    """The time to live that a header block asks for: 0 none, -1 never, else nanoseconds."""
    return ttl_of(headers, <uint32_t>len(headers))
