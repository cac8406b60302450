# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.core._sink cimport Msg
from server.core._sublist cimport MatchResult
from server.jetstream._hub cimport ConsumerHub
from storage._record cimport Record


# Where the messages and statuses of one consumer leave.
cdef class Outlet:
    cdef readonly ConsumerHub hub
    cdef readonly Account account
    cdef bytes ack_prefix               # of the reply subjects, up to the delivery count
    cdef bint headers_only

    cdef bint is_backed_up(self, bytes to) except -1
    cdef bint has_interest(self, bytes subject) except -1
    cdef size_t write_reply(
        self, const Record* record, uint32_t deliveries, uint64_t consumer_seq, uint64_t pending
    ) except? 0
    cdef int64_t reduced_size(self, const Record* record) noexcept nogil
    cdef int deliver_record(
        self, const Record* record, bytes to, MatchResult* result, size_t reply_len,
        bytes added, int64_t* size
    ) except -1
    cdef char* write_headers(self, char* at, const Record* record, bytes added) noexcept
    cdef int send(self, MatchResult* result, Msg* message) noexcept
    cdef int send_status(self, bytes reply, bytes block) except -1
    cdef int send_request(self, bytes to, bytes reply, bytes block) except -1
