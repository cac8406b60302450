# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from server.core._account cimport Account
from server.core._sublist cimport Sublist
from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._hub cimport ConsumerHub
from server.jetstream._ingest cimport StreamSink
from server.jetstream._kinds cimport Retention
from server.jetstream._sweeps cimport UnwantedSweep
from storage._store cimport StoreEvents, StreamStore


# A stream as its consumers see it: told of what becomes durable and what goes.
cdef class StreamFeed(StoreEvents):
    cdef readonly ConsumerHub hub
    cdef readonly StreamStore store
    cdef readonly Account account
    cdef readonly bytes name
    cdef StreamSink sink                # None: nothing hears the stream's subjects
    cdef public Retention retention
    cdef readonly uint64_t durable_seq  # counted up to here
    cdef readonly Sublist interest      # of the consumers; `>` of those without filter
    cdef readonly dict cores            # in the order in which they came; no values
    cdef uint32_t filtered              # how many of them have filters
    cdef UnwantedSweep unwanted         # the last one; None: there was none
    cdef readonly bint is_closed
    cdef public bint is_purging         # who is concerned is told when the purge is over

    cdef int count_for(
        self, ConsumerCore core, uint64_t lowest, uint64_t last, uint64_t count
    ) except -1
    cdef int settled(self, uint64_t seq) except -1
    cdef bint is_wanted(self, uint64_t seq, ConsumerCore but) except -1
    cdef int remove(self, uint64_t seq) except -1
