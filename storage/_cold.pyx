# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Spans in few bits: how a snapshot writes them, and how one that nobody changes is kept in memory.

The subject numbers of a span are packed to as many bits as the highest needs; with a time to live
somewhere, each is doubled and its low bit says so. A cold span has only these and `firsts`: the
distances that lead out of it, of the first live message of each subject. The others are found anew
when it is warmed, so a thousand subjects cost 11 bits a message instead of 64.
"""
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from storage._index cimport SUBJECT_ID_MASK
from storage._spans cimport HAS_TTL

cdef enum:
    TTL_IN_WIDTH = 0x80
    READ_AHEAD_BYTES = 8            # `packed_slot` reads whole words
    SLOTS_LEAST = 16

cdef uint32_t FAR = 0xFFFFFFFFu


cdef uint32_t width_of(const Span* span, bint* with_ttl) noexcept nogil:
    """Bits that hold every subject number of the span."""
    cdef uint32_t i, every = 0, width = 1
    for i in range(span.top):
        every |= span.subjects[i]
    with_ttl[0] = every & <uint32_t>HAS_TTL != 0
    every &= SUBJECT_ID_MASK
    while every >> width:
        width += 1
    return width + with_ttl[0]


cdef size_t words_of(uint32_t count, uint32_t width) noexcept nogil:
    return (<size_t>count * width + 63) >> 6


cdef uint8_t* pack(uint8_t* at, const Span* span) noexcept nogil:
    cdef bint with_ttl = False
    cdef uint32_t width = width_of(span, &with_ttl), i, fill = 0
    cdef uint64_t word = 0, value
    at[0] = <uint8_t>(width | (TTL_IN_WIDTH if with_ttl else 0))
    at += 1
    for i in range(span.top):
        value = span.subjects[i] & SUBJECT_ID_MASK
        if with_ttl:
            value = value << 1 | (span.subjects[i] >> 31)
        word |= value << fill
        fill += width
        if fill >= 64:
            memcpy(at, &word, 8)
            at += 8
            fill -= 64
            word = value >> (width - fill) if fill else 0
    if fill:
        memcpy(at, &word, 8)
        at += 8
    return at


cdef void unpack_span(
    const uint8_t* words, uint32_t width, bint with_ttl, Span* span
) noexcept nogil:
    cdef uint64_t word = 0, value, mask = (<uint64_t>1 << width) - 1
    cdef uint32_t i, left = 0
    for i in range(span.top):
        if left >= width:
            value = word & mask
            word >>= width
            left -= width
        else:
            value = word
            memcpy(&word, words, 8)
            words += 8
            value = (value | word << left) & mask
            word >>= width - left
            left += 64 - width
        if with_ttl:
            value = value >> 1 | (value & 1) << 31
        span.subjects[i] = <uint32_t>value


cdef int pack_span(Span* span) except -1:
    """Pack a span that changed since it was packed last; the others keep what they have."""
    cdef bint with_ttl = False
    cdef uint32_t length
    cdef uint8_t* packed
    if span.packed != NULL and span.packed_version == span.version:
        return 0
    length = <uint32_t>(1 + 8 * words_of(span.top, width_of(span, &with_ttl)))
    packed = <uint8_t*>realloc(span.packed, length + READ_AHEAD_BYTES)
    if packed == NULL:
        raise MemoryError
    pack(packed, span)
    span.packed = packed
    span.packed_len = length
    span.packed_version = span.version
    return 0


cdef inline uint32_t packed_at(const Span* span, uint32_t width, uint32_t at) noexcept nogil:
    cdef size_t bit = <size_t>at * width
    cdef uint64_t word
    memcpy(&word, span.packed + 1 + (bit >> 3), 8)
    return <uint32_t>((word >> (bit & 7)) & ((<uint64_t>1 << width) - 1))


cdef uint32_t packed_slot(const Span* span, uint32_t at) noexcept nogil:
    """What a cold span has at this place."""
    cdef uint32_t value = packed_at(span, span.packed[0] & 0x7F, at)
    if span.packed[0] & TTL_IN_WIDTH:
        value = value >> 1 | value << 31
    return value


cdef void unpack_some(
    const Span* span, uint32_t low, uint32_t high, uint32_t* out
) noexcept nogil:
    """The slots from `low` to below `high` of a cold span."""
    cdef uint32_t width = span.packed[0] & 0x7F, i
    if span.packed[0] & TTL_IN_WIDTH:
        for i in range(low, high):
            out[i - low] = packed_slot(span, i)
        return
    for i in range(low, high):
        out[i - low] = packed_at(span, width, i)


cdef bint leads_out(const Span* span, uint32_t at, uint32_t* distance) noexcept nogil:
    """Whether the live message before, of the same subject, lies before the span; then how far."""
    cdef uint64_t total = span.distances[at]
    cdef uint32_t step
    while 0 < total <= at:
        if span.subjects[at - total]:
            return False
        # A dead place keeps its distance.
        step = span.distances[at - total]
        total = 0 if step == 0 else total + step
        if step == FAR:
            break
    distance[0] = <uint32_t>min(total, <uint64_t>FAR)
    return True


cdef bint cool_span(Span* span) except -1:
    """Keep only what is packed, if that takes at most half; whether the span is cold now."""
    cdef uint32_t* firsts
    cdef uint32_t* fewer
    cdef uint32_t i, count = 0
    pack_span(span)
    firsts = <uint32_t*>malloc((<size_t>span.top + 1) * sizeof(uint32_t))
    if firsts == NULL:
        raise MemoryError
    for i in range(span.top):
        if span.subjects[i] and leads_out(span, i, &firsts[count]):
            count += 1
    if span.packed_len + count * 4 > span.capacity * 4:
        free(firsts)
        return False
    fewer = <uint32_t*>realloc(firsts, (<size_t>count + 1) * sizeof(uint32_t))
    span.firsts = firsts if fewer == NULL else fewer
    span.first_count = count
    free(span.subjects)
    free(span.distances)
    span.subjects = NULL
    span.distances = NULL
    span.capacity = 0
    span.cold = True
    return True


cdef bint warm_span(Span* span) noexcept nogil:
    """As it was before `cool_span`; False: no memory."""
    cdef uint32_t width = span.packed[0] & 0x7F
    cdef bint with_ttl = (span.packed[0] & TTL_IN_WIDTH) != 0
    cdef uint32_t capacity = SLOTS_LEAST, i, number, taken = 0
    cdef uint32_t* behind           # by subject number: one more than its last place
    while capacity < span.top:
        capacity *= 2
    behind = <uint32_t*>calloc(<size_t>1 << (width - with_ttl), sizeof(uint32_t))
    span.subjects = <uint32_t*>calloc(capacity, sizeof(uint32_t))
    span.distances = <uint32_t*>calloc(capacity, sizeof(uint32_t))
    if behind == NULL or span.subjects == NULL or span.distances == NULL:
        return False
    unpack_span(span.packed + 1, width, with_ttl, span)
    for i in range(span.top):
        number = span.subjects[i] & SUBJECT_ID_MASK
        if number:
            if behind[number]:
                span.distances[i] = i + 1 - behind[number]
            else:
                span.distances[i] = span.firsts[taken]
                taken += 1
            behind[number] = i + 1
    free(behind)
    free(span.firsts)
    span.firsts = NULL
    span.first_count = 0
    span.capacity = capacity
    span.cold = False
    return True
