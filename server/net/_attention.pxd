# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class Attention:
    cdef uint64_t first, second     # the connections of the exchange
    cdef uint32_t pause             # so many of its parts are slept for before the next try
    cdef uint32_t left              # of them
    cdef uint32_t caught            # parts that came while awake, since the last that did not
    cdef uint32_t others_left       # so many turns of others do not end the exchange
    cdef int64_t heard_ns
    cdef bint awake

    # At the end of a turn that read from one connection, or from several (0).
    cpdef void heard(self, uint64_t cid, bint answered, int64_t now_ns) noexcept
    # At the end of any turn with work in it, before `heard`.
    cpdef void worked(self, int64_t spent_ns) noexcept
    cdef bint are_one(self, uint64_t cid, uint64_t other) noexcept
    cdef void heard_other(self, uint64_t cid) noexcept
    # Whether to look again at once.
    cpdef bint lasts(self, int64_t now_ns) noexcept
