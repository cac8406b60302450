# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._filter cimport SubjectFilter
from storage._store cimport StreamStore


cdef class PurgeJob:
    cdef StreamStore store
    cdef SubjectFilter wanted
    cdef uint64_t at
    cdef uint64_t last
    cdef uint64_t newest                # of all messages when it began: later ones are not counted
    cdef uint64_t keep
    cdef uint64_t most
    cdef uint64_t gone                  # sequences without a message, when `most` was found
    cdef readonly uint64_t purged
    cdef readonly bint done

    cdef int find_most(self) except -1


# Nothing is in the indexes; what the home has is still there.
cdef int forget_all(StreamStore store) except -1
cdef PurgeJob purge_job(StreamStore store, SubjectFilter wanted, uint64_t seq, uint64_t keep)
# Lowered limits, at most `most` removals; whether they hold.
cdef bint enforce_limits(StreamStore store, uint64_t most) except -1
