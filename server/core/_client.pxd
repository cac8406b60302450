from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.core._connection cimport Connection
from server.core._permissions cimport Permissions
from server.core._sink cimport Msg
from server.core._sublist cimport MatchResult, Sub
from server.core._outbox cimport Chunk
from server.wire._parser cimport Fault, Parser, PubArgs


cdef enum:
    HEAD_BYTES = 64


# Why a delivery takes the long way.
cdef enum Care:
    CARE_GONE = 1            # closed or about to be
    CARE_ECHO = 2            # own messages are not wanted
    CARE_DENY = 4            # a subscription overlaps a deny entry
    CARE_MARK = 8            # above 75 % of max_pending
    CARE_TRACE = 16
    CARE_REPLIES = 32        # reply subjects become publish permissions


cdef class Client(Connection):
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
    cdef readonly Account account
    cdef readonly str user
    cdef public str user_label
    cdef public object auth
    cdef readonly Permissions permissions
    cdef public object tls
    cdef str connect_label
    cdef readonly int64_t max_payload
    cdef readonly int64_t max_subs
    cdef int64_t user_max_payload, user_max_subs
    cdef bint _trace
    cdef bint started
    cdef bint first_pong_sent
    cdef bint accepting              # inside or between on_connect and accept

    # publishing
    cdef bint verbose
    cdef bint pedantic
    cdef bint headers
    cdef bint no_responders
    cdef MatchResult* match
    cdef uint64_t match_stamp
    cdef uint32_t subs_changed
    cdef uint64_t line_id            # of the last publish line

    # receiving
    cdef uint8_t care
    # The MSG line of the last delivery: the next one is often the same.
    cdef uint8_t head_len
    cdef Sub* head_sub
    cdef uint64_t head_line_id
    cdef char[HEAD_BYTES] head
    cdef Sub** sid_table
    cdef uint32_t sid_buckets
    cdef readonly uint32_t subscription_count
    cdef dict replies                # reply subject -> [uses, until], with allow_responses
    cdef uint32_t replies_since_prune

    # time
    cdef int64_t auth_deadline_ns
    cdef int64_t ping_at_ns
    cdef int64_t ping_sent_ns
    cdef int pings_out
    cdef readonly int64_t rtt_ns
    cdef int64_t last_active_ns

    cdef readonly int64_t in_msgs, in_bytes, out_msgs, out_bytes

    cdef int on_pub_line(self, const PubArgs* args) noexcept
    cdef int on_pub(self, const PubArgs* args, const char* payload) noexcept
    cdef bint clear_pub(self, const PubArgs* args) noexcept
    cdef int on_sub(self, const char* subject, size_t subject_len, const char* queue,
                    size_t queue_len, const char* sid, size_t sid_len) noexcept
    cdef int on_unsub(self, const char* sid, size_t sid_len, int64_t maximum) noexcept
    cdef bint careful_deliver(self, Msg* message, Sub* sub) noexcept
    cdef Sub** find_sid(self, const char* sid, size_t sid_len) noexcept
    cdef bint add_sid(self, Sub* sub) noexcept
    cdef void remove_sub(self, Sub* sub) noexcept
    cdef void remove_all_subs(self) noexcept
    cdef int answer(self) noexcept
    cdef Chunk* reading_from
    cdef ask_hook(self, hook)
    cdef log(self, str level, str text)
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
    cdef bint use_reply(self, bytes subject)
    cdef note_reply(self, bytes reply)
    cdef prune_replies(self)
    cdef refuse_sub(self, bytes subject, bytes queue, bytes sid)
    cdef void set_care(self, uint8_t why, bint on) noexcept
    cdef void send_ok(self) noexcept
    cdef set_first_ping(self, int64_t now)
    cdef run_ping_timer(self, int64_t now)
    cdef trace_line(self, str text)
    cdef trace_operation(self, int verb, bytes args)
    cdef trace_payload(self, str arrow, bytes payload, int header_size)
    cdef trace_delivery(self, bytes line, bytes payload, int header_size)
