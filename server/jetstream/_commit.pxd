# cython: language_level=3
from libc.stdint cimport uint64_t

from server.core._sink cimport Sink
from server.core._turn cimport Phase, Turn
from storage._store cimport StreamStore


# Publishers whose disk cannot keep up: nothing more is read from them until it can.
cdef class Backpressure:
    cdef bint is_on
    cdef list held

    cdef int hold(self, void* origin) except -1
    cdef int let_go(self) except -1


# Who writes to a store: the sink of a stream, the consumers' book.
cdef class Writer(Sink):
    cdef public StreamStore store       # None: it is opened before anything is written
    cdef readonly bytes name
    cdef readonly bint in_memory
    cdef public object down             # why nothing is stored any more; None: it is not down
    cdef public uint64_t durable_seq
    cdef bint waits                     # it is in the commit's row of those that wait
    cdef bint forgotten                 # it is closed: the commit's rows pass it over
    cdef Backpressure pressure          # of its disk; None: it has none

    cpdef close_turn(self)
    cpdef bint release(self, uint64_t seq) except -1
    cdef bint is_awaited(self) noexcept
    cdef int give_up(self) except -1


cdef class LocalCommit:
    cdef Turn turn
    cdef Phase phase
    cdef object directory
    cdef object log
    cdef bint lazy
    cdef list written                   # in this turn
    cdef list waiting                   # until the disk has what they wrote
    cdef set writers
    cdef readonly dict stopped          # those that are down on their own, by writer; why
    cdef list asked
    cdef object settling                # deque of (ticket, whom to call)
    cdef bint failed
    cdef readonly object failure        # why nothing is stored on disk any more
    cdef public object on_failure
    cdef public object ask_later        # (seconds, callable): a loop's timer; None: nothing is put off
    cdef bint is_put_off                # the timer runs
    cdef bint wanted                    # something else was written: it is not put off
    cdef Backpressure pressure
    cdef bint is_open                   # what was written waits until the disk has finished a batch

    cdef bint keeps_open(self) except -1
    cdef int feel_pressure(self) except -1
    cdef int hand_over(self) except -1
    cdef bint needs_bell(self, uint64_t ticket, bint is_asked) except -1
    cdef int put_off(self) except -1
    cdef uint64_t submit(self) except? 0
    cdef int settle(self) except -1
    cdef int wait_for_disk(self, Writer writer) except -1
    cdef int release(self, Writer writer) except -1
    cdef uint64_t durable_seq(self, Writer writer) noexcept
    cdef int fail(self, str why) except -1
