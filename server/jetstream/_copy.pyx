# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Copying plain messages from one stream's store into another stream, without a Python object each.

Contract. `PlainCopier.copy` stores what comes next in the origin, in order, until a message needs
more than that: any header of the server's, a size or a limit in the way, a refusal of the store.
That message is left for Python, which does it or tells why not. `last_with` looks backwards for a
message whose headers have a text in them.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from server.jetstream._ingest cimport StreamSink
from storage._filter cimport SubjectFilter
from storage._index cimport SUBJECT_LEN_MAX
from storage._record cimport Record
from storage._store cimport ACCEPTED, StreamStore

cdef extern from *:
    """
    #include <string.h>
    """
    void* memmem(const void* text, size_t size, const void* wanted, size_t wanted_size) nogil

cdef enum:
    HEADER_BYTES_MAX = 65535
    RECORD_BYTES_MAX = 33_554_432
    NUMBER_BYTES = 21


cdef class PlainCopier:
    """`source_head` and `source_tail` stand around the sequence in a sourced message's mark; without
    them the copy keeps the origin's sequences and times."""
    cdef StreamSink sink
    cdef readonly StreamStore origin
    cdef SubjectFilter wanted
    cdef bytes source_head, source_tail, identity
    cdef bint is_mirror
    cdef char* room
    cdef size_t room_size
    cdef readonly uint64_t position
    cdef readonly uint64_t copied
    cdef readonly bint needs_python

    def __init__(
        self, StreamSink sink not None, StreamStore origin not None, filters,
        bytes source_head=None, bytes source_tail=b"", bytes identity=b"",
    ):
        self.sink = sink
        self.origin = origin
        self.wanted = origin.own_filter(filters)
        self.is_mirror = source_head is None
        self.source_head = source_head
        self.source_tail = source_tail
        self.identity = identity

    def __dealloc__(self):
        free(self.room)

    def copy(self, uint64_t position, uint64_t last, uint64_t messages_max):
        """Copy what is behind `position` and not behind `last`; how far, how many, and why it ended
        are attributes."""
        cdef Record record
        cdef uint64_t seq
        self.position = position
        self.copied = 0
        self.needs_python = False
        while self.copied < messages_max:
            seq = self.origin.next_seq(self.wanted, self.position + 1)
            if seq == 0 or seq > last:
                return
            if not self.origin.read(seq, &record) or not self.is_plain(&record) or not self.fits(
                &record
            ):
                self.needs_python = True
                return
            record.seq = seq
            if not self.store(&record):
                self.needs_python = True
                return
            self.position = seq
            self.copied += 1

    cdef bint is_plain(self, const Record* record) noexcept nogil:
        return record.hdr_len == 0 or memmem(record.hdr, record.hdr_len, b"Nats-", 5) == NULL

    cdef bint fits(self, const Record* record) noexcept:
        """Whether no limit of the target but the store's own can be in the way."""
        cdef StreamSink sink = self.sink
        cdef uint64_t size = record.hdr_len + record.msg_len
        cdef size_t mark = 0
        if not self.is_mirror:
            # Its line, and the first line and the end of a block that was not there.
            mark = (
                len(self.source_head) + len(self.source_tail) + len(self.identity)
                + NUMBER_BYTES + record.subject_len + 32
            )
        size += mark
        if sink.down is not None or sink.sealed or record.subject_len > SUBJECT_LEN_MAX:
            return False
        if 0 <= sink.message_bytes_max < <int64_t>size or size + 1024 > RECORD_BYTES_MAX:
            return False
        if record.hdr_len + mark > HEADER_BYTES_MAX:
            return False
        if sink.usage is None:
            return True
        if sink.usage.parent is not None and 0 <= sink.usage.parent.max < sink.usage.parent.used:
            return False
        return sink.usage.max < 0 or (
            sink.usage.used + <int64_t>(size + record.subject_len + 64) <= sink.usage.max
        )

    cdef bint store(self, Record* record) except -1:
        """Whether the store took it. The view of the origin is copied before anything is written."""
        cdef StreamSink sink = self.sink
        cdef uint64_t seq = record.seq
        sink.touch()
        self.hold(record)
        if self.is_mirror:
            if seq <= sink.store.last_seq:
                return True
            if seq > sink.store.last_seq + 1:
                sink.store.skip(seq - 1 - sink.store.last_seq)
                sink.stored(NULL, 0, 0)
        else:
            record.ts_ns = sink.turn_ns
        record.skip_count = 0
        if sink.store.store_record(record, 0) != ACCEPTED:
            return False
        sink.stored(NULL, 0, sink.store.home.counted_size(record))
        return True

    cdef int hold(self, Record* record) except -1:
        """Move the record's texts into memory of ours; a source's mark goes behind its headers."""
        cdef size_t wanted = (
            <size_t>2 * record.subject_len + record.hdr_len + record.msg_len + NUMBER_BYTES + 64
        )
        cdef char* at
        cdef char* bigger
        if not self.is_mirror:
            wanted += len(self.source_head) + len(self.source_tail) + len(self.identity)
        if wanted > self.room_size:
            bigger = <char*>realloc(self.room, 2 * wanted)
            if bigger == NULL:
                raise MemoryError
            self.room = bigger
            self.room_size = 2 * wanted
        at = self.room
        memcpy(at, record.subject, record.subject_len)
        record.subject = at
        at += record.subject_len
        if self.is_mirror:
            memcpy(at, record.hdr, record.hdr_len)
            record.hdr = at
            at += record.hdr_len
        else:
            at = self.add_mark(record, at)
        memcpy(at, record.msg, record.msg_len)
        record.msg = at
        return 0

    cdef char* add_mark(self, Record* record, char* at) noexcept:
        cdef char* start = at
        cdef size_t kept = record.hdr_len - 2 if record.hdr_len else 10
        memcpy(at, record.hdr if record.hdr_len else <const char*>b"NATS/1.0\r\n", kept)
        at += kept
        at = put(at, self.source_head)
        at += snprintf(at, NUMBER_BYTES, b"%llu", <unsigned long long>record.seq)
        at = put(at, self.source_tail)
        memcpy(at, record.subject, record.subject_len)
        at += record.subject_len
        if len(self.identity):
            at[0] = 32
            at = put(at + 1, self.identity)
        memcpy(at, b"\r\n\r\n", 4)
        at += 4
        record.hdr = start
        record.hdr_len = <uint32_t>(at - start)
        return at


cdef inline char* put(char* at, bytes text) noexcept:
    memcpy(at, <const char*>text, len(text))
    return at + len(text)


def last_with(StreamStore store not None, bytes text not None, uint64_t seq, uint64_t stop):
    """The last sequence at or below `seq`, and above `stop`, whose headers have `text`; 0: none."""
    cdef Record record
    cdef const char* wanted = text
    cdef size_t size = len(text)
    while True:
        seq = store.spans.last_live(min(seq, store.last_seq))
        if seq <= stop:
            return 0
        if store.read(seq, &record) and record.hdr_len and (
            memmem(record.hdr, record.hdr_len, wanted, size) != NULL
        ):
            return seq
        seq -= 1
