from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.core._connection cimport Connection
from server.core._permissions cimport Permissions
from server.core._sink cimport Msg
from server.core._sublist cimport Sub


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


# Which of the subscriptions somebody wants to know about.
cdef enum Way:
    EVERY
    REACHED                  # its subject covers the one asked about
    NAMED                    # its subject is covered by it
    OVERLAPPING


cdef struct Question:
    Way how
    const char* subject
    size_t subject_len
    const char* queue
    size_t queue_len         # 0: of any queue, or of none
    int64_t skip, until      # the page that is wanted
    int64_t enough           # stop at so many; -1: all are counted


cdef class Subscriber(Connection):
    cdef readonly Account account
    cdef readonly Permissions permissions
    cdef bint headers                # agreed on
    cdef bint _trace
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
    cdef readonly int64_t out_msgs, out_bytes

    cdef int64_t look_through(self, Question* asked, list found) except -1
    cdef Sub** find_sid(self, const char* sid, size_t sid_len) noexcept
    cdef bint add_sid(self, Sub* sub) noexcept
    cdef void remove_sub(self, Sub* sub) noexcept
    cdef void remove_all_subs(self) noexcept
    cdef void set_care(self, uint8_t why, bint on) noexcept
    cdef bint careful_deliver(self, Msg* message, Sub* sub) noexcept
    # Why a message cannot be queued; None: nothing is in its way.
    cdef str obstacle(self, Msg* message, Sub* sub)
    cdef tell_refused(self, str text)
    cdef void tell_no_responders(self, bytes subject, bytes reply) noexcept
    cdef bint use_reply(self, bytes subject)
    cdef note_reply(self, bytes reply)
    cdef prune_replies(self)
    cdef void send_ok(self) noexcept
    cdef log(self, str level, str text)
    cdef trace_line(self, str text)
    cdef trace_payload(self, str arrow, bytes payload, int header_size)
    cdef trace_delivery(self, bytes line, bytes payload, int header_size)
