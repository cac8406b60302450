# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t


cdef class Patience:
    cdef int64_t span               # the one that turns are counted in
    cdef uint32_t turns             # in it
    cdef uint32_t turns_before      # in the one before
    cdef int64_t told_ns            # when somebody was last told something
    cdef bint kept_up               # the last turn left nothing unread

    # At the end of a turn with input: whether something was written since the one before; nothing is left to read.
    cpdef void turned(self, int64_t now_ns, bint told, bint kept_up) noexcept
    # Whether the input that is there may wait for more.
    cpdef bint waits(self, int64_t now_ns) noexcept
