from libc.stdint cimport int32_t, int64_t, uint64_t

from server.core._turn cimport Turn
from server.core._wheel cimport Wheel


cdef class Broker:
    cdef public object hooks
    cdef readonly Turn turn
    cdef Wheel wheel
    cdef readonly object default_account
    cdef public object system_account
    cdef readonly dict accounts
    cdef readonly dict clients
    cdef object clock_source
    cdef object wall_source
    cdef uint64_t last_cid
    cdef public uint64_t random      # the state of queue choices and jitter; a replay sets it
    cdef uint64_t last_line_id       # of Msg.line_id
    cdef public object tracing       # the MessageTrace of the message that is being published
    cdef list stalled                # connections whose reading waits for a slow consumer
    cdef bint release_stalls         # a slow consumer caught up

    cdef public int32_t max_control_line
    cdef public int32_t max_payload
    cdef public int64_t max_pending
    cdef public int64_t max_subs
    cdef public int32_t max_sub_tokens
    cdef public int64_t max_connections
    cdef public int64_t ping_interval_ns
    cdef public int ping_max
    cdef public int64_t first_ping_ns
    cdef public int64_t write_deadline_ns
    cdef public int64_t auth_timeout_ns
    cdef public bint headers
    cdef public bint sublist_cache
    cdef public bint no_fast_producer_stall
    cdef public bint write_retry     # a late write that moved bytes gets another deadline
    cdef public bint auth_required
    cdef public bint trace
    cdef public bint trace_headers_only
    cdef public int max_traced_msg_len
    cdef public bint lame_duck

    cdef public int64_t in_msgs, in_bytes, out_msgs, out_bytes
    cdef bint wrote                  # to a connection; whoever takes note of it clears it
    cdef public int64_t total_connections
    cdef public int64_t slow_consumers_pending, slow_consumers_deadline
    cdef public int64_t stale_connections, stalls

    cdef set_default_limits(self)
    cdef int64_t clock(self) noexcept
    cdef int64_t wall(self) noexcept
    cdef double random_fraction(self) noexcept
    cdef void run_stalls(self, int64_t now_ns) noexcept
