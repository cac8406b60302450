# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.jetstream._flow cimport Flow
from server.jetstream._kinds cimport Ending
from server.jetstream._waiting cimport Waiting
from storage._record cimport Record


# Pause, samples of acknowledgements, dead letters: what pull and push consumers have alike.
cdef class CommonFlow(Flow):
    cdef readonly int64_t paused_until_wall_ns  # 0: not paused
    cdef public object on_resumed               # called when a pause is over
    cdef public uint32_t sample_percent
    cdef public object on_sampled
    cdef public object on_dead                  # None: no dead letters

    cdef bint is_paused(self) except -1
    cdef int64_t check_pause(self, int64_t now_ns) except -1
    cdef int sample(self, uint64_t seq, uint64_t consumer_seq, uint32_t deliveries) except -1
    cdef int bury(self, uint64_t seq, uint32_t deliveries, Ending why, str reason) except -1


# Heartbeats, flow control and rate of a push consumer.
cdef class PushFlow(CommonFlow):
    cdef readonly int64_t beat_ns               # 0: no heartbeats
    cdef int64_t next_beat_ns
    cdef readonly int64_t window                # bytes that may be under way; 0: any
    cdef readonly int64_t under_way
    cdef readonly bytes asked                   # the reply subject of the open request
    cdef int64_t asked_size
    cdef bint acks_by_flow                      # its answers acknowledge
    cdef double bytes_a_ns                      # 0: no rate
    cdef double burst
    cdef double allowance
    cdef int64_t refilled_ns

    cdef int ask(self) except -1
    cdef bytes new_id(self)
    cdef int refill(self, int64_t now_ns) except -1
    cdef int beat(self, int64_t now_ns) except -1


# Priority groups of a pull consumer.
cdef class GroupFlow(CommonFlow):
    cdef bint is_overflow
    cdef bint is_pinned
    cdef int64_t pin_timeout_ns
    cdef int64_t pin_due_ns
    cdef readonly str pin                       # "": nobody is pinned
    cdef readonly str group
    cdef readonly int64_t pinned_wall_ns
    cdef public object new_pin                  # makes an id
    cdef public object on_pinned
    cdef public object on_unpinned

    cdef bint is_enough(self, Waiting waiting) except -1
    cdef bint may_take(self, Waiting waiting, bint needs_pin, bint* is_wrong) except -1
    cdef int assign(self, Waiting waiting, int64_t now_ns) except -1
