from libc.stdint cimport int64_t, uint64_t

from server.core._subscriber cimport Subscriber


cdef inline int64_t smaller(int64_t limit, int64_t other) noexcept:
    """The tighter of two limits, where -1 is none."""
    if limit < 0:
        return other
    return limit if other < 0 or limit < other else other


cdef class Peer(Subscriber):
    cdef readonly uint64_t cid
    cdef readonly str kind
    cdef readonly str type
    cdef readonly str ip
    cdef readonly int port
    cdef public int server_port
    cdef readonly object options
    cdef readonly str user
    cdef public str user_label
    cdef public str issuer_key
    cdef public object auth
    cdef public object tls
    cdef str connect_label
    cdef readonly object preface     # reads what may come ahead of the protocol; None: nothing may

    cdef int64_t auth_deadline_ns    # 0: none
    cdef int64_t preface_deadline_ns
    cdef int64_t ping_at_ns
    cdef int64_t ping_sent_ns
    cdef int pings_out
    cdef readonly int64_t rtt_ns
    cdef int64_t last_active_ns

    cdef size_t take_preface(self, bytes received) except? 0
    cdef ask_hook(self, hook)
    cdef int give_up(self, error) noexcept
    cdef void on_pong(self) noexcept
    cdef process_info(self, bytes json)
    cdef set_first_ping(self, int64_t now)
    cdef run_ping_timer(self, int64_t now)
    cdef describe(self, options)
