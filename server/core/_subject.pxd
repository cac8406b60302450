"""Rules of subjects on bytes. server/core/subject.py says the same in Python.

Tokens are split by `.` and never empty. `*` alone is any one token, `>` alone and last is one or
more tokens; both are plain text inside a longer token.
"""

from libc.string cimport memchr, memcmp


cdef enum:
    SUBJECT_INVALID = 0
    SUBJECT_LITERAL = 1
    SUBJECT_WILDCARD = 2


cdef inline size_t token_end(const char* subject, size_t length, size_t at) noexcept nogil:
    cdef const char* dot = <const char*> memchr(subject + at, c".", length - at)
    return length if dot == NULL else <size_t> (dot - subject)


cdef inline int subject_kind(const char* subject, size_t length) noexcept nogil:
    cdef int kind = SUBJECT_LITERAL
    cdef size_t at = 0, end
    while True:
        end = token_end(subject, length, at) if at < length else at
        if end == at:
            return SUBJECT_INVALID
        if end - at == 1:
            if subject[at] == c">":
                return SUBJECT_WILDCARD if end == length else SUBJECT_INVALID
            if subject[at] == c"*":
                kind = SUBJECT_WILDCARD
        if end == length:
            return kind
        at = end + 1


# Only that no token is empty: what a published subject needs.
cdef inline bint subject_is_whole(const char* subject, size_t length) noexcept nogil:
    cdef size_t at
    if length == 0 or subject[0] == c"." or subject[length - 1] == c".":
        return False
    for at in range(1, length):
        if subject[at] == c"." and subject[at - 1] == c".":
            return False
    return True


cdef inline bint token_is(const char* subject, size_t at, size_t end, char what) noexcept nogil:
    return end - at == 1 and subject[at] == what


# Is there a literal subject that matches both? Both must be valid.
cdef inline bint subjects_overlap(
    const char* a, size_t a_len, const char* b, size_t b_len
) noexcept nogil:
    cdef size_t i = 0, j = 0, i_end, j_end
    while True:
        i_end = token_end(a, a_len, i)
        j_end = token_end(b, b_len, j)
        if token_is(a, i, i_end, c">") or token_is(b, j, j_end, c">"):
            return True
        if not token_is(a, i, i_end, c"*") and not token_is(b, j, j_end, c"*"):
            if i_end - i != j_end - j or memcmp(a + i, b + j, i_end - i) != 0:
                return False
        if i_end == a_len or j_end == b_len:
            return i_end == a_len and j_end == b_len
        i = i_end + 1
        j = j_end + 1


# Does every literal subject that matches `a` match `b` too? Both must be valid.
cdef inline bint subject_is_subset(
    const char* a, size_t a_len, const char* b, size_t b_len
) noexcept nogil:
    cdef size_t i = 0, j = 0, i_end, j_end
    while True:
        i_end = token_end(a, a_len, i)
        j_end = token_end(b, b_len, j)
        if token_is(b, j, j_end, c">"):
            return True
        if token_is(a, i, i_end, c">"):
            return False
        if not token_is(b, j, j_end, c"*"):
            if token_is(a, i, i_end, c"*"):
                return False
            if i_end - i != j_end - j or memcmp(a + i, b + j, i_end - i) != 0:
                return False
        if i_end == a_len or j_end == b_len:
            return i_end == a_len and j_end == b_len
        i = i_end + 1
        j = j_end + 1
