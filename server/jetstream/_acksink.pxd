# cython: language_level=3
from libc.stdint cimport int64_t, uint64_t

from server.core._account cimport Account
from server.core._sink cimport Msg, Sink
from server.core._sublist cimport Sub
from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._hub cimport ConsumerHub
from server.jetstream._kinds cimport Ending
from server.jetstream._pending cimport Entry


# Hears the acknowledgements of one account.
cdef class AckSink(Sink):
    cdef ConsumerHub hub
    cdef Account account
    cdef Sub* sub
    cdef dict cores                     # b"<stream>.<consumer>" -> ConsumerCore
    cdef readonly bytes newer_prefix    # of the longer subjects, behind $JS.ACK.
    cdef ConsumerCore last
    cdef int take(self, Msg* message) except -1
    cdef ConsumerCore find(self, const char* key, size_t length)
    cdef int acknowledge(
        self, ConsumerCore core, Msg* message, uint64_t seq, uint64_t consumer_seq, int64_t now_ns
    ) except -1
    cdef bint acked(
        self, ConsumerCore core, uint64_t seq, uint64_t consumer_seq, Ending why, str reason
    ) except -1
    cdef int tell_terminated(
        self, ConsumerCore core, uint64_t seq, uint64_t consumer_seq, str reason
    ) except -1
    cdef int nak(
        self, ConsumerCore core, uint64_t seq, uint64_t consumer_seq, bytes argument, int64_t now_ns
    ) except -1
    cdef int put_off(
        self, ConsumerCore core, Entry* entry, int64_t delay_ns, int64_t now_ns
    ) except -1
    cdef int in_progress(self, ConsumerCore core, uint64_t seq, int64_t now_ns) except -1
    cdef int answer_ack(self, ConsumerCore core, Msg* message) except -1
