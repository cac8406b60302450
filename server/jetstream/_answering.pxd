# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.jetstream._commit cimport Writer
from server.jetstream._republish cimport Republisher
from storage._record cimport Record

cdef enum:
    RAW = 0                     # a header size: there are none
    PUB_ACK = -1


# An answer that waits until all up to `gate` is durable. Its texts stand behind it.
cdef struct Answer:
    uint64_t gate
    uint64_t seq                # of a PubAck whose body is the tail behind the number; COPY
    uint32_t reply_len
    uint32_t body_len
    int32_t header_size         # of the body; -1: the body is the tail of a PubAck
    uint32_t room               # bytes to the next answer


cdef class Answering(Writer):
    cdef Account account
    cdef bytes pub_ack              # a PubAck up to its sequence
    cdef public bint no_ack
    cdef public Republisher copies  # None: nothing is republished
    cdef char* answers
    cdef size_t answer_head, answer_tail, answer_capacity
    cdef char* line                 # reply and body of the answer on its way
    cdef size_t line_capacity

    cdef int touch(self) except -1
    cdef int answer_ack(
        self, const char* reply, uint32_t reply_len, uint64_t seq, const char* tail, uint32_t tail_len
    ) except -1
    cdef int add_answer(
        self, const char* reply, uint32_t reply_len, uint64_t seq, const char* body,
        uint32_t body_len, int32_t header_size
    ) except -1
    cdef char* open_answer(
        self, const char* reply, uint32_t reply_len, uint64_t seq, size_t body_len,
        int32_t header_size
    ) except NULL
    cdef int make_room(self, size_t room) except -1
    cdef int send_copy(self, const Record* record, uint64_t before) except -1
    cdef bint send_answers(self) except -1
    cdef int send(self, Answer* answer) except -1
    cdef int route_body(
        self, const char* reply, uint32_t reply_len, int32_t header_size, const char* body,
        size_t size
    ) except -1
    cdef size_t fill_line(self, Answer* answer) except? 0
