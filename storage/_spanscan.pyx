# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Walks over the slots of one span: how many match, where a subject is, which come next.

A cold span is unpacked piece by piece, except for `next_in_span`, which wants a warm one.
"""
from storage._cold cimport unpack_some
from storage._filter cimport MATCH_ALL, MATCH_ONE
from storage._index cimport SUBJECT_ID_MASK
from storage._spans cimport SPAN_BITS

cdef enum:
    UNPACKED_AT_ONCE = 1024

cdef extern from "_scan.h" nogil:
    uint32_t find_subject(const uint32_t* slots, uint32_t at, uint32_t end, uint32_t subject)
    uint32_t find_subject_down(const uint32_t* slots, uint32_t at, uint32_t subject)
    uint32_t count_subject(const uint32_t* slots, uint32_t at, uint32_t end, uint32_t subject)
    uint32_t count_live(const uint32_t* slots, uint32_t at, uint32_t end)
    uint32_t count_bits(const uint32_t* slots, uint32_t at, uint32_t end, const uint32_t* bits)


cdef uint32_t count_in(SubjectFilter wanted, const uint32_t* slots, uint32_t at, uint32_t end) noexcept nogil:
    if wanted.mode == MATCH_ALL:
        return count_live(slots, at, end)
    if wanted.mode == MATCH_ONE:
        return count_subject(slots, at, end, wanted.subject)
    return count_bits(slots, at, end, wanted.bits)


cdef uint64_t count_span(
    SubjectFilter wanted, const Span* span, uint32_t low, uint32_t high
) noexcept nogil:
    """How many of the slots from `low` to below `high` the filter matches."""
    cdef uint32_t[UNPACKED_AT_ONCE] slots
    cdef uint64_t total = 0
    cdef uint32_t end
    if not span.cold:
        return count_in(wanted, span.subjects, low, high)
    while low < high:
        end = min(high, low + <uint32_t>UNPACKED_AT_ONCE)
        unpack_some(span, low, end, slots)
        total += count_in(wanted, slots, 0, end - low)
        low = end
    return total


cdef uint32_t find_in_span(
    const Span* span, uint32_t low, uint32_t high, uint32_t subject
) noexcept nogil:
    """The first place from `low` on with this subject, or `high`."""
    cdef uint32_t[UNPACKED_AT_ONCE] slots
    cdef uint32_t end, found
    if not span.cold:
        return find_subject(span.subjects, low, high, subject)
    while low < high:
        end = min(high, low + <uint32_t>UNPACKED_AT_ONCE)
        unpack_some(span, low, end, slots)
        found = find_subject(slots, 0, end - low, subject)
        if found < end - low:
            return low + found
        low = end
    return high


cdef uint32_t find_down_in_span(const Span* span, uint32_t high, uint32_t subject) noexcept nogil:
    """One more than the last place below `high` with this subject, or 0."""
    cdef uint32_t[UNPACKED_AT_ONCE] slots
    cdef uint32_t low, found
    if not span.cold:
        return find_subject_down(span.subjects, high, subject)
    while high:
        low = high - min(high, <uint32_t>UNPACKED_AT_ONCE)
        unpack_some(span, low, high, slots)
        found = find_subject_down(slots, high - low, subject)
        if found:
            return low + found
        high = low
    return 0


cdef uint32_t next_in_span(
    SubjectFilter wanted, const Span* span, uint32_t* at, uint32_t end, uint64_t* found,
    uint32_t limit,
) noexcept nogil:
    """The matching ones of a span's slots from `at` to below `end`; `at` moves on."""
    cdef uint32_t i = at[0], count = 0, number
    cdef uint64_t base = span.number << SPAN_BITS
    cdef bint every = wanted.mode == MATCH_ALL
    while i < end and count < limit:
        number = span.subjects[i] & SUBJECT_ID_MASK
        # No subject is number 0, so its bit is never set.
        if number if every else (wanted.bits[number >> 5] >> (number & 31)) & 1:
            found[count] = base + i
            count += 1
        i += 1
    at[0] = i
    return count
