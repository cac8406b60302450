from libc.stdint cimport int64_t, uint8_t, uint32_t

from server.core._broker cimport Broker
from server.core._outbox cimport Chunk, Outbox, iovec
from server.core._sink cimport Sink
from server.core._wheel cimport Timer


cdef enum:
    SENT_NOTHING = -1        # the carrier takes no more now; it calls `writable` when it does
    SENT_NEVER = -2          # the carrier is broken


# What moves a connection's bytes. One object may serve many connections.
cdef class Carrier:
    cdef Py_ssize_t send(self, Connection connection, const iovec* vectors, int count) noexcept
    cdef void want_write(self, Connection connection, bint wanted) noexcept
    cdef void want_read(self, Connection connection, bint wanted) noexcept
    cdef void shut(self, Connection connection) noexcept
    # Bytes that were taken by `send` and are still in this process.
    cdef size_t held(self, Connection connection) noexcept


cdef class PyCarrier(Carrier):
    cdef object write_call
    cdef object close_call
    cdef object pause_call
    cdef object pending_call
    cdef bint paused


cdef enum Hold:
    HOLD_AUTH = 1            # a CONNECT is being decided
    HOLD_STALL = 2           # a consumer of what it publishes is too far behind
    HOLD_DISK = 4            # the disk is, of the streams that take what it publishes


cdef class Connection(Sink):
    cdef readonly Broker broker
    cdef Carrier carrier
    cdef readonly int fd
    cdef uint32_t events             # the poller's: what it asked epoll for
    cdef bint dirty
    cdef bint borrowing
    cdef readonly bint closed
    cdef bint blocked                # the carrier took less than there was
    cdef uint8_t holds               # why nothing more is parsed
    cdef readonly str reason
    cdef str doom                    # close with this reason at the end of the turn
    cdef Outbox out
    cdef Chunk* rest                 # received, not consumed
    cdef size_t rest_wanted          # allocate so much, for a large payload
    cdef Timer timer
    cdef int64_t write_deadline_ns   # 0: none
    cdef int64_t write_begin         # written when the deadline was set
    cdef bint known_slow             # missed a deadline before and was let live
    cdef int64_t write_goal          # written by then
    cdef int64_t written
    cdef int64_t stall_until_ns
    cdef int64_t stalled_ns          # in this read
    cdef int64_t max_pending         # copies of the broker's, next to what they are compared with
    cdef int64_t stall_mark
    cdef int64_t early_mark          # write before the end of the turn above this
    cdef bint above_mark
    cdef set_above_mark(self, bint above)
    cdef slow_pending(self)
    cdef check_write_deadline(self, int64_t now_ns)
    cdef void set_blocked(self) noexcept
    cdef void arm_write_deadline(self) noexcept
    cdef int64_t last_in_ns
    cdef int64_t start_ns
    cdef readonly int64_t start_wall_ns
    cdef readonly int64_t stop_wall_ns
    cdef public int64_t stalls

    # Parses; returns how many bytes were consumed. Implemented by the kind of connection.
    cdef size_t consume(self, const char* data, size_t size, Chunk* owner) noexcept
    cdef void teardown(self) noexcept
    cdef int64_t next_deadline(self) noexcept
    cdef void on_timer(self, int64_t now_ns) noexcept

    cdef void take(self, const char* data, size_t size) noexcept
    cdef bint keep(self, const char* data, size_t size) noexcept
    cdef void resume(self) noexcept
    cdef void hold(self, uint8_t why) noexcept
    cdef void unhold(self, uint8_t why) noexcept
    cdef void stall(self, bint over_limit) noexcept
    cdef void mark_dirty(self) noexcept
    cdef bint put(self, const char* data, size_t size) noexcept
    cdef void after_put(self) noexcept
    cdef void write_out(self) noexcept
    cdef void set_timer(self) noexcept
    cdef void copy_limits(self) noexcept
    cdef void finish(self, str reason, bint flush_first) noexcept
