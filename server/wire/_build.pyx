# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Pieces of the lines a server writes.

Contract: every function writes behind `out`, which has room, and returns the bytes written.
"""

from libc.stdint cimport uint32_t


cdef size_t put_decimal(char* out, uint32_t value) noexcept nogil:
    cdef char[DECIMAL_MAX] digits
    cdef int at = DECIMAL_MAX
    cdef size_t count
    while True:
        at -= 1
        digits[at] = <char> (c'0' + value % 10)
        value //= 10
        if value == 0:
            break
    count = DECIMAL_MAX - at
    copy_short(out, &digits[at], count)
    return count


def decimal(value: int) -> bytes:
    """For tests."""
    cdef char[DECIMAL_MAX] out
    return out[:put_decimal(out, value)]
