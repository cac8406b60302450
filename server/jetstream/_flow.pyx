# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The seam of what consumers do beside delivering in order; `_policies` has what hangs in it.

Contract. A `ConsumerCore` asks its flow, if it has one, at each step that a policy may decide. A
flow that decides nothing behaves as if there were none. Who says that nothing may be sent wakes
the core when it may.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._kinds cimport Ending
from server.jetstream._waiting cimport Waiting
from storage._record cimport Record


cdef class Flow:
    def __init__(self, ConsumerCore core not None):
        self.core = core

    cdef bint may_send(self, int64_t now_ns) except -1:
        """Whether the next message may go out; who says no wakes the core when it may."""
        return True

    cdef int accept(self, Waiting waiting, int64_t now_ns) except -1:
        """A pull request that keeps the limits, before it queues; pull.Refused says why not."""
        return 0

    cdef Waiting pick(self, int64_t size, int64_t now_ns):
        """Who gets a message of this size. The request has been charged with it."""
        return self.core.pulls.pick(size, now_ns)

    cdef bytes added_header(self):
        """Lines that all messages carry, each with its CRLF; None or empty: none."""
        return None

    cdef int sent(
        self, const Record* record, uint64_t consumer_seq, int64_t size, int64_t now_ns
    ) except -1:
        """A message left."""
        return 0

    cdef int ended(
        self, uint64_t seq, uint64_t consumer_seq, uint32_t deliveries, Ending why, str reason
    ) except -1:
        """A message that was pending is done with. It can still be read from the store; nothing
        may be published or removed from here: put it off with `hub.tell`."""
        return 0

    cdef int idle(self, int64_t now_ns) except -1:
        """The consumer has nothing that it may send just now."""
        return 0

    cdef int64_t tick(self, int64_t now_ns) except -1:
        """What is due by now; when the next is due, 0: nothing is."""
        return 0

    cdef int stopped(self) except -1:
        """The consumer ends."""
        return 0
