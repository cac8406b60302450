from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.core._outbox cimport Chunk
from server.core._peer cimport Peer
from server.core._permissions cimport Permissions
from server.core._sublist cimport MatchResult
from server.wire._parser cimport Fault, Parser, PubArgs


cdef class Client(Peer):
    cdef Parser parser
    cdef public bytes nonce
    cdef readonly bint connected
    cdef public bint auth_required
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

    cdef readonly int64_t in_msgs, in_bytes

    cdef int on_pub_line(self, const PubArgs* args) noexcept
    cdef int begin_line(self, const PubArgs* args, const char* payload) except -1
    cdef int on_pub(self, const PubArgs* args, const char* payload) noexcept
    cdef void find_match(self, const PubArgs* args) noexcept
    cdef int clear_pub(self, const PubArgs* args) except -1
    cdef int on_ping(self) except -1
    cdef int on_sub(self, const char* subject, size_t subject_len, const char* queue,
                    size_t queue_len, const char* sid, size_t sid_len) except -1
    cdef int on_unsub(self, const char* sid, size_t sid_len, int64_t maximum) except -1
    cdef int answer(self) noexcept
    cdef bind(self, Account account)
    cdef process_fault(self, Fault fault, bytes near)
    cdef process_connect(self, bytes line)
    cdef process_missing_connect(self)
    cdef finish_connect(self)
    cdef send_connect_info(self)
    cdef put_permissions(self, Permissions permissions)
    cdef int refuse_pub(self, bytes subject) except -1
    cdef void send_no_responders(self, const PubArgs* args) noexcept
    cdef refuse_sub(self, bytes subject, bytes queue, bytes sid)
    cdef trace_operation(self, int verb, bytes args)
