# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._kinds cimport Ending
from server.jetstream._waiting cimport Waiting
from storage._record cimport Record


# What a consumer's policies decide beside delivering in order: pause, rate, flow control, groups,
# pins, dead letters, samples. A consumer without any has none. DESIGN.md, "Consumers".
cdef class Flow:
    cdef readonly ConsumerCore core
    cdef bint may_send(self, int64_t now_ns) except -1
    cdef int accept(self, Waiting waiting, int64_t now_ns) except -1
    cdef Waiting pick(self, int64_t size, int64_t now_ns)
    cdef bytes added_header(self)
    cdef int sent(
        self, const Record* record, uint64_t consumer_seq, int64_t size, int64_t now_ns
    ) except -1
    cdef int ended(
        self, uint64_t seq, uint64_t consumer_seq, uint32_t deliveries, Ending why, str reason
    ) except -1
    cdef int idle(self, int64_t now_ns) except -1
    cdef int64_t tick(self, int64_t now_ns) except -1
    cdef int stopped(self) except -1
