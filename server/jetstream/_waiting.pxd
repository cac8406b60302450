# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t


# A pull request that was taken. Times are of the clock that only grows; 0 is never.
cdef class Waiting:
    cdef readonly bytes reply
    cdef readonly object request        # pull.PullRequest
    cdef public int64_t messages        # it may still get
    cdef public int64_t size            # bytes it may still get; 0: any number
    cdef readonly bint no_wait
    cdef readonly int64_t received_ns
    cdef readonly int64_t expires_ns
    cdef readonly int64_t heartbeat_ns
    cdef public int64_t next_heartbeat_ns
    cdef public int64_t delivered
    cdef public int64_t priority
    cdef Waiting next


cdef class WaitingQueue:
    cdef public uint32_t most
    cdef public bint by_priority
    cdef readonly uint32_t count
    cdef Waiting head
    cdef Waiting tail

    cdef bint add(self, Waiting waiting)            # False: it is full
    cdef void cycle(self)                           # the head goes behind all others
    cdef void take(self)                            # one message for the head
    cdef void drop_head(self)
    # `before` is the one in front of `waiting`, None for the head.
    cdef void remove(self, Waiting before, Waiting waiting)
    cdef void insert(self, Waiting waiting)
