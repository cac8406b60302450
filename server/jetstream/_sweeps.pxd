# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._feed cimport StreamFeed
from server.jetstream._hub cimport ConsumerHub
from server.jetstream._pending cimport Entry
from server.jetstream._waits cimport Waits


# Work over many messages. Subclasses say what one step is.
cdef class Sweep:
    cdef readonly ConsumerHub hub
    cdef public object armed_ns
    cdef readonly bint is_over

    cdef int begin(self) except -1
    cdef int slice(self) except -1
    # Look at up to `most`; whether all is done.
    cdef bint step(self, uint32_t most) except -1
    cdef int finish(self) except -1


# Entries whose messages a purge took.
cdef class StaleSweep(Sweep):
    cdef ConsumerCore core
    cdef uint64_t first_seq
    cdef uint32_t number                # of the entry that is next, in the order of delivery
    cdef uint64_t seq                   # its sequence: it may be another one's by then
    cdef bint in_order                  # those pending are looked through
    cdef uint32_t at                    # then all numbers, for what is not pending

    cdef void restart(self, uint64_t first_seq) noexcept
    cdef bint is_stale(self, const Entry* entry) noexcept
    cdef bint step_in_order(self, uint32_t most) except -1


# Entries that one acknowledgement of all before it is done with.
cdef class AckedSweep(Sweep):
    cdef ConsumerCore core
    cdef uint64_t seq


# Entries that are waited for as long as is configured now, not as it was when they were delivered.
cdef class RetimedSweep(Sweep):
    cdef ConsumerCore core
    cdef Waits before
    cdef uint32_t at                    # the number of the entry that is next


# Messages of a stream that nobody waits for any more.
cdef class UnwantedSweep(Sweep):
    cdef StreamFeed feed
    cdef uint64_t at
    cdef uint64_t last


# What is below `first_seq` or not in the stream is not pending any more.
cdef int settle_stale(ConsumerCore core, uint64_t first_seq) except -1
# Others are waited for from now on; those that are pending get their times anew.
cdef int change_waits(ConsumerCore core, Waits waits) except -1
# All up to `seq` are acknowledged; False: that says nothing new.
cdef bint end_up_to(ConsumerCore core, uint64_t seq, uint64_t consumer_seq) except -1
