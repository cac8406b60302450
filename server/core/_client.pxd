from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.core._outbox cimport Chunk
from server.core._session cimport Session
from server.wire._parser cimport Fault, PubArgs


cdef class Client(Session):
    cdef bint started
    cdef bint first_pong_sent

    # publishing
    cdef bint untraced               # its headers were looked at and ask for nothing
    cdef uint32_t subs_changed
    cdef uint64_t line_id            # of the last publish line
    cdef Chunk* reading_from         # whose bytes are being parsed; NULL: a read buffer's

    cdef readonly int64_t in_msgs, in_bytes

    cdef int on_pub_line(self, const PubArgs* args, const char* payload, size_t have) noexcept
    # Whether the account maps the subject; `mapped` then is the line with the other one.
    cdef bint map_subject(self, const PubArgs* args, PubArgs* mapped) except -1
    cdef int show_mapping(self, bytes source, bytes to) except -1
    cdef int begin_line(self, const PubArgs* args, const char* payload) except -1
    cdef int on_pub(self, const PubArgs* args, const char* payload) noexcept
    cdef void find_match(self, const PubArgs* args) noexcept
    # As `Sink.foresee`, of what the next publish will touch; step 0 when the client itself is there.
    cdef void foresee_publish(self, int step) noexcept
    cdef int clear_pub(self, const PubArgs* args) except -1
    cdef int on_ping(self) except -1
    cdef int on_sub(self, const char* subject, size_t subject_len, const char* queue,
                    size_t queue_len, const char* sid, size_t sid_len) except -1
    cdef int on_unsub(self, const char* sid, size_t sid_len, int64_t maximum) except -1
    cdef int answer(self) noexcept
    cdef process_fault(self, Fault fault, bytes near)
    cdef int refuse_pub(self, bytes subject) except -1
    cdef void send_no_responders(self, const PubArgs* args) noexcept
    cdef refuse_sub(self, bytes subject, bytes queue, bytes sid)
    cdef trace_operation(self, int verb, bytes args)
