# cython: language_level=3
from libc.stdint cimport int64_t

from server.core._sink cimport Sink
from server.core._sublist cimport Sub
from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._waiting cimport Waiting


# Hears the pull requests of one consumer; those that it took stand in `core.waiting`.
cdef class PullSink(Sink):
    cdef readonly ConsumerCore core
    cdef Sub* sub                       # NULL: hears nothing
    cdef int64_t looked_ns              # at the waiting requests, when the queue was full

    cdef int request(self, bytes reply, bytes body, bytes headers, int64_t now_ns) except -1
    cdef int take_request(self, bytes reply, bytes body, int64_t now_ns) except -1
    cdef int check(self, bint at_end, int64_t now_ns, int64_t* batch) except -1
    cdef Waiting pick(self, int64_t size, int64_t now_ns)
    cdef int drop_first(self, int code, str text) except -1
    cdef int charge(self, int64_t size) except -1
