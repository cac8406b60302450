# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a consumer sends: messages with their reply subjects, statuses.

Contract. Knows nothing of what comes next or of who asks: a message, where to, and how many took
it. The reply subject, headers and body are built in the hub's room; a large body has its own
chunk, shared by all that take it.
"""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from server.core._account cimport Account
from server.core._broker cimport Broker
from server.core._connection cimport Connection
from server.core._outbox cimport Chunk, chunk_new, chunk_release, outbox_pending
from server.core._router cimport route
from server.core._sink cimport Msg
from server.core._sublist cimport MatchResult
from server.jetstream._acks cimport NUMBER_MAX, NUMBERS, put_ack_subject, put_number
from server.jetstream._hub cimport ConsumerHub
from storage._record cimport Record

cdef enum:
    COPIED_BODY_MAX = 2048
    UNWRITTEN_MAX = 8 << 20     # a connection with more waiting gets nothing for a moment

cdef bytes SIZE_FIELD = b"Nats-Msg-Size: "
cdef bytes NO_HEADERS = b"NATS/1.0\r\n"


cdef bint is_unwritten(const MatchResult* result) except -1:
    """Whether the one connection that would get it has not written what it got before."""
    cdef Connection connection
    if result.plain_count != 1 or result.group_count or result.plain[0].sink == NULL:
        return False
    sink = <object>result.plain[0].sink
    if not isinstance(sink, Connection):
        return False
    connection = <Connection>sink
    return outbox_pending(&connection.out) > UNWRITTEN_MAX


def is_backed_up(Account account not None, str subject not None):
    cdef bytes to = subject.encode("utf-8", "surrogateescape")
    return is_unwritten(account.sublist.match(to, len(to)))


@cython.no_gc_clear
cdef class Outlet:
    def __init__(self, ConsumerHub hub not None, Account account not None, bytes ack_prefix):
        self.hub = hub
        self.account = account
        self.ack_prefix = ack_prefix

    cdef bint is_backed_up(self, bytes to) except -1:
        return is_unwritten(self.account.sublist.match(to, len(to)))

    cdef size_t write_reply(
        self, const Record* record, uint32_t deliveries, uint64_t consumer_seq, uint64_t pending
    ) except? 0:
        """The reply subject, at the start of the hub's room."""
        cdef size_t prefix = len(self.ack_prefix)
        return put_ack_subject(
            self.hub.reserve(prefix + NUMBERS * (NUMBER_MAX + 1)), <const char*>self.ack_prefix,
            prefix, deliveries, record.seq, consumer_seq, <uint64_t>record.ts_ns, pending
        )

    cdef int64_t reduced_size(self, const Record* record) noexcept nogil:
        """The headers of a message without its payload."""
        cdef char[NUMBER_MAX] digits
        cdef int64_t number = put_number(digits, record.msg_len) - digits
        return (record.hdr_len - 2 if record.hdr_len else 10) + 15 + number + 4

    cdef bint has_interest(self, bytes subject) except -1:
        cdef MatchResult* result = self.account.sublist.match(subject, len(subject))
        return result.plain_count > 0 or result.group_count > 0

    cdef int deliver_record(
        self, const Record* record, bytes to, MatchResult* result, size_t reply_len,
        bytes added, int64_t* size
    ) except -1:
        """Route a message; how many took it. Its reply subject stands in the hub's room."""
        cdef Msg message
        cdef Chunk* chunk = NULL
        cdef size_t header_size = record.hdr_len, body_size, wanted
        cdef char* at
        cdef int taken
        if self.headers_only:
            header_size = self.reduced_size(record)
        if added is not None and len(added):
            header_size = (header_size if header_size else 12) + len(added)
        body_size = header_size + (0 if self.headers_only else record.msg_len)
        wanted = reply_len + body_size + 2
        self.hub.reserve(wanted)
        if body_size > COPIED_BODY_MAX:
            chunk = chunk_new(body_size + 2)
            if chunk == NULL:
                raise MemoryError
            at = chunk.data
        else:
            at = self.hub.text + reply_len
        message.payload = at
        if self.headers_only or (added is not None and len(added)):
            at = self.write_headers(at, record, added)
        elif record.hdr_len:
            memcpy(at, record.hdr, record.hdr_len)
            at += record.hdr_len
        if not self.headers_only and record.msg_len:
            memcpy(at, record.msg, record.msg_len)
            at += record.msg_len
        at[0] = 13
        at[1] = 10
        message.subject = record.subject
        message.subject_len = record.subject_len
        message.reply = self.hub.text
        message.reply_len = <uint32_t>reply_len
        message.header_size = <int>header_size
        message.size = <int>body_size
        message.owner = chunk
        message.origin = NULL
        message.tail_len = message.plain_tail_len = 0
        taken = self.send(result, &message)
        if chunk != NULL:
            chunk_release(chunk)
        size[0] = record.subject_len + reply_len + body_size
        return taken

    cdef char* write_headers(self, char* at, const Record* record, bytes added) noexcept:
        """The header block with the lines of this consumer."""
        if record.hdr_len:
            memcpy(at, record.hdr, record.hdr_len - 2)
            at += record.hdr_len - 2
        else:
            memcpy(at, <const char*>NO_HEADERS, 10)
            at += 10
        if added is not None:
            memcpy(at, <const char*>added, len(added))
            at += len(added)
        if self.headers_only:
            memcpy(at, <const char*>SIZE_FIELD, 15)
            at = put_number(at + 15, record.msg_len)
            at[0] = 13
            at[1] = 10
            at += 2
        at[0] = 13
        at[1] = 10
        return at + 2

    cdef int send(self, MatchResult* result, Msg* message) noexcept:
        cdef int taken
        cdef Broker broker = self.hub.broker
        broker.last_line_id += 1
        message.line_id = broker.last_line_id
        taken = route(self.account.sublist, result, message, &broker.random)
        self.account.out_msgs += taken
        self.account.out_bytes += <int64_t>taken * message.size
        broker.out_msgs += taken
        broker.out_bytes += <int64_t>taken * message.size
        return taken

    cdef int send_status(self, bytes reply, bytes block) except -1:
        """A message of nothing but headers."""
        return self.send_request(reply, None, block)

    cdef int send_request(self, bytes to, bytes reply, bytes block) except -1:
        """The same with a subject for the answer."""
        cdef Msg message
        cdef bytes body = block + b"\r\n"
        cdef Chunk* chunk
        cdef MatchResult* result = self.account.sublist.match(to, len(to))
        if result.plain_count == 0 and result.group_count == 0:
            return 0
        chunk = chunk_new(len(body))
        if chunk == NULL:
            raise MemoryError
        memcpy(chunk.data, <const char*>body, len(body))
        message.subject = to
        message.subject_len = <uint32_t>len(to)
        message.reply = NULL
        message.reply_len = 0
        if reply is not None:
            message.reply = reply
            message.reply_len = <uint32_t>len(reply)
        message.payload = chunk.data
        message.owner = chunk
        message.origin = NULL
        message.header_size = message.size = <int>len(block)
        message.tail_len = message.plain_tail_len = 0
        self.send(result, &message)
        chunk_release(chunk)
        return 1

    def send_empty(self, bytes to):
        self.send_status(to, b"")
