# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.core._sink cimport Sink
from server.core._sublist cimport Sub
from server.jetstream._feed cimport StreamFeed
from server.jetstream._flow cimport Flow
from server.jetstream._hub cimport ConsumerHub
from server.jetstream._keeper cimport Keeper, Place
from server.jetstream._kinds cimport AckPolicy, Ending
from server.jetstream._outlet cimport Outlet
from server.jetstream._pending cimport Entry, PendingTable
from server.jetstream._pullsink cimport PullSink
from server.jetstream._sweeps cimport AckedSweep, RetimedSweep, StaleSweep
from server.jetstream._waiting cimport WaitingQueue
from server.jetstream._waits cimport Waits
from storage._filter cimport SubjectFilter
from storage._store cimport StreamStore


cdef class ConsumerCore(Sink):
    cdef readonly ConsumerHub hub
    cdef readonly StreamFeed feed
    cdef readonly object owner          # consumer.Consumer
    cdef readonly object config
    cdef readonly Account account
    cdef StreamStore store
    cdef readonly PullSink pulls
    cdef readonly Outlet outlet
    cdef public Flow flow
    cdef SubjectFilter wanted
    cdef readonly list filters
    cdef list interest_subs             # addresses of Sub, in the feed's sublist
    cdef bytes ack_key              # <stream>.<consumer>
    cdef bytes reply_key            # the same as its replies have it, perhaps with more before it

    cdef AckPolicy ack_policy
    cdef readonly bint is_push
    cdef uint32_t deliveries_max        # 0: no limit
    cdef uint32_t ack_pending_max       # 0: no limit
    cdef Waits waits
    cdef Waits next_waits               # configured while a change before it was not carried out; or None
    cdef bytes deliver_subject
    cdef bytes deliver_group

    cdef readonly PendingTable table
    cdef readonly WaitingQueue waiting
    cdef readonly uint64_t next_seq
    cdef uint64_t search_seq            # what is looked for lies here or above
    cdef readonly uint64_t next_consumer_seq
    cdef readonly uint64_t delivered_seq
    cdef readonly uint64_t floor_seq
    cdef readonly uint64_t floor_consumer_seq
    cdef readonly int64_t delivered_wall_ns
    cdef readonly int64_t acked_wall_ns
    cdef readonly uint64_t num_pending
    cdef StaleSweep stale               # the last of each kind; None: there was none
    cdef AckedSweep acked
    cdef RetimedSweep retimed           # None: all are timed by `waits`
    cdef uint64_t* skip                 # last_per_subject: what comes first, in order
    cdef size_t skip_at
    cdef size_t skip_count
    cdef uint64_t resume_seq            # where it goes on behind them

    cdef bint replay_original
    cdef uint64_t replay_end_seq
    cdef int64_t replay_stored_ns       # of the message sent last
    cdef int64_t replay_sent_ns
    cdef int64_t replay_due_ns

    cdef readonly Keeper keeper         # None: it ends with the process
    cdef readonly bint closed
    cdef bint is_started
    cdef public bint active             # push: somebody listens
    cdef bint is_held                   # until a connection has written more
    cdef bint is_ready                  # stands in the hub's row
    cdef int64_t armed_at_ns
    cdef readonly int64_t used_ns       # a request, a delivery

    cdef bint is_deliver_subject(self, const Sub* sub) noexcept

    # What is kept
    cdef int note(self) except -1
    cdef int note_moved(self) except -1
    cdef int write_place(self, Place* place) except -1
    cdef int64_t wait_of(self, int32_t redeliveries) noexcept nogil
    cdef void move_floor(self, uint64_t consumer_seq, uint64_t seq) noexcept nogil
    cdef bint acked_up_to(self, uint64_t seq, uint64_t consumer_seq) except -1
    cdef bint is_acked(self, uint64_t seq) noexcept
    cdef int end_entry(self, Entry* entry, Ending why, str reason) except -1
    cdef int overdue(self, uint64_t seq) except -1
    cdef bint take_overdue(self, int64_t now_ns) except -1
    cdef bint needs_ack(self, uint64_t seq) noexcept nogil
    cdef int appended(self, uint64_t seq, uint64_t count) except -1
    cdef int gone(self, uint64_t seq) except -1
    cdef bint in_skip(self, uint64_t seq) noexcept nogil
    cdef int drop_skipped(self) except -1
    cdef bint is_full(self) noexcept nogil
    cdef int wake(self) except -1
    cdef int arm(self, int64_t at_ns) except -1
    cdef int drop_interest(self) except -1
    cdef int raise_interest(self) except -1
