from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.core._outbox cimport Chunk
from server.core._permissions cimport Permissions
from server.core._sublist cimport MatchResult
from server.core._subscriber cimport Subscriber
from server.wire._parser cimport Fault, Parser, PubArgs


cdef class Client(Subscriber):
    cdef Parser parser
    cdef readonly uint64_t cid
    cdef readonly str kind
    cdef readonly str type
    cdef readonly str ip
    cdef readonly int port
    cdef public int server_port
    cdef public bytes nonce
    cdef readonly object options
    cdef readonly bint connected
    cdef public bint auth_required
    cdef readonly str user
    cdef public str user_label
    cdef public object auth
    cdef public object tls
    cdef str connect_label
    cdef readonly int64_t max_payload
    cdef readonly int64_t max_subs
    cdef int64_t user_max_payload, user_max_subs
    cdef bint started
    cdef bint first_pong_sent
    cdef bint accepting              # inside or between on_connect and accept

    # publishing
    cdef bint verbose
    cdef bint pedantic
    cdef bint no_responders
    cdef MatchResult* match
    cdef uint64_t match_stamp
    cdef uint32_t subs_changed
    cdef uint64_t line_id            # of the last publish line
    cdef Chunk* reading_from         # whose bytes are being parsed; NULL: a read buffer's

    # time
    cdef int64_t auth_deadline_ns
    cdef int64_t ping_at_ns
    cdef int64_t ping_sent_ns
    cdef int pings_out
    cdef readonly int64_t rtt_ns
    cdef int64_t last_active_ns

    cdef readonly int64_t in_msgs, in_bytes

    cdef int on_pub_line(self, const PubArgs* args) noexcept
    cdef int on_pub(self, const PubArgs* args, const char* payload) noexcept
    cdef void find_match(self, const PubArgs* args) noexcept
    cdef bint clear_pub(self, const PubArgs* args) noexcept
    cdef int on_sub(self, const char* subject, size_t subject_len, const char* queue,
                    size_t queue_len, const char* sid, size_t sid_len) noexcept
    cdef int on_unsub(self, const char* sid, size_t sid_len, int64_t maximum) noexcept
    cdef int answer(self) noexcept
    cdef ask_hook(self, hook)
    cdef bind(self, Account account)
    cdef process_fault(self, Fault fault, bytes near)
    cdef process_info(self, bytes json)
    cdef process_connect(self, bytes line)
    cdef process_missing_connect(self)
    cdef finish_connect(self)
    cdef send_connect_info(self)
    cdef put_permissions(self, Permissions permissions)
    cdef bint refuse_pub(self, bytes subject)
    cdef void send_no_responders(self, const PubArgs* args) noexcept
    cdef refuse_sub(self, bytes subject, bytes queue, bytes sid)
    cdef set_first_ping(self, int64_t now)
    cdef run_ping_timer(self, int64_t now)
    cdef trace_operation(self, int verb, bytes args)
