# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The copies that a stream republishes: where each goes, and the headers that tell of the original.

Contract. A copy has the message's own headers and behind them `Nats-Stream`, `Nats-Subject`,
`Nats-Sequence`, `Nats-Time-Stamp` and `Nats-Last-Sequence` (of the subject, before this one); one
without its body has `Nats-Msg-Size` as well. A subject that matches nothing or becomes none that
may be published to has no copy.
"""
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from server.core._subject cimport SUBJECT_LITERAL, subject_kind
from server.jetstream._acks cimport put_number

from server.jetstream.gotime import time_text

cdef enum:
    NUMBER_BYTES = 21

cdef bytes EMPTY = b"NATS/1.0\r\n\r\n"


cdef class Republisher:
    def __init__(self, transform not None, str stream not None, bint headers_only):
        self.plan = SubjectPlan(transform)
        self.stream = stream.encode()
        self.headers_only = headers_only
        self.time = b""

    def __dealloc__(self):
        free(self.block)

    cdef bint prepare(self, const Record* record, uint64_t before) except -1:
        if not self.plan.apply(record.subject, record.subject_len) or (
            subject_kind(self.plan.text, self.plan.text_len) != SUBJECT_LITERAL
        ):
            return False
        if record.ts_ns != self.time_ns:
            self.time_ns, self.time = record.ts_ns, time_text(record.ts_ns).encode()
        self.block_len = 0
        if record.hdr_len > 2:
            self.put(record.hdr, record.hdr_len - 2)
        else:
            self.put(EMPTY, len(EMPTY) - 2)
        self.put_field(b"Nats-Stream: ", 13, self.stream, len(self.stream))
        self.put_field(b"Nats-Subject: ", 14, record.subject, record.subject_len)
        self.put_count(b"Nats-Sequence: ", 15, record.seq)
        self.put_field(b"Nats-Time-Stamp: ", 17, self.time, len(self.time))
        self.put_count(b"Nats-Last-Sequence: ", 20, before)
        if self.headers_only:
            self.put_count(b"Nats-Msg-Size: ", 15, record.msg_len)
        self.put(b"\r\n", 2)
        return True

    cdef int put(self, const char* text, size_t length) except -1:
        cdef size_t wanted = self.block_len + length
        cdef char* bigger
        if wanted > self.room:
            bigger = <char*>realloc(self.block, 2 * wanted)
            if bigger == NULL:
                raise MemoryError
            self.block = bigger
            self.room = 2 * wanted
        memcpy(self.block + self.block_len, text, length)
        self.block_len = wanted
        return 0

    cdef int put_field(self, const char* name, size_t name_len, const char* text, size_t length) except -1:
        self.put(name, name_len)
        self.put(text, length)
        return self.put(b"\r\n", 2)

    cdef int put_count(self, const char* name, size_t name_len, uint64_t count) except -1:
        cdef char[NUMBER_BYTES] digits
        cdef char* end = put_number(digits, count)
        return self.put_field(name, name_len, digits, end - digits)
