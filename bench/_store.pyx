# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Loops for bench/storage_index.py that call the store at C level."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memset

from storage._filter cimport SubjectFilter
from storage._record cimport Record, RecordHome
from storage._store cimport ACCEPTED, StreamStore

cdef char[65536] PAYLOAD
memset(PAYLOAD, 120, 65536)


cdef class NoHome(RecordHome):
    """Keeps nothing: what remains is the cost of the logic."""
    cdef int append(self, const Record* record) except -1:
        self.last_seq = record.seq
        return 0

    cdef int read(self, uint64_t seq, Record* out) except -1:
        memset(out, 0, sizeof(Record))
        out.seq = seq
        out.msg_len = 128
        return 1

    cdef int forget(self, uint64_t seq, bint erase) except -1:
        return 1

    cdef int drop_below(self, uint64_t seq) except -1:
        return 0

    cdef uint64_t counted_size(self, const Record* record) noexcept nogil:
        return 30 + record.msg_len


cdef inline uint64_t scatter(uint64_t i) noexcept nogil:
    i = (i ^ (i >> 31)) * 0x7FB5D329728EA185u
    i = (i ^ (i >> 27)) * 0x81DADEF4BC2DD44Du
    return i ^ (i >> 33)


cdef inline uint16_t subject_into(char* text, uint64_t number) noexcept nogil:
    """`k.<number>.x`, written by hand: snprintf would be most of the time."""
    cdef char[20] digits
    cdef int count = 0, at = 2
    text[0] = 107
    text[1] = 46
    while True:
        digits[count] = 48 + number % 10
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        text[at] = digits[count]
        at += 1
    text[at] = 46
    text[at + 1] = 120
    return at + 2


def store(StreamStore store, uint64_t count, uint64_t distinct, uint32_t payload_len, int64_t ts_ns,
          int64_t ts_step_ns=0, bint scattered=True):
    """Store `count` messages over `distinct` subjects."""
    cdef Record record
    cdef char[64] text
    cdef uint64_t i
    memset(&record, 0, sizeof(Record))
    record.subject = text
    record.msg = PAYLOAD
    record.msg_len = payload_len
    record.ts_ns = ts_ns
    for i in range(count):
        record.subject_len = subject_into(text, scatter(i) % distinct if scattered else i % distinct)
        record.ts_ns += ts_step_ns
        if store.store_record(&record, 0) != ACCEPTED:
            raise RuntimeError("refused")


def read(StreamStore store, uint64_t count):
    cdef Record record
    cdef uint64_t i, found = 0
    for i in range(count):
        found += store.read(store.first_seq + scatter(i) % (store.last_seq - store.first_seq), &record)
    return found


def read_last(StreamStore store, uint64_t count, uint64_t distinct):
    cdef Record record
    cdef char[64] text
    cdef uint64_t i, found = 0
    cdef uint16_t length
    for i in range(count):
        length = subject_into(text, scatter(i) % distinct)
        found += store.read(store.last_seq_of(text, length), &record)
    return found


def next_literal(StreamStore store, uint64_t count, uint64_t distinct):
    """The next message of a random subject from a random place on, and the message itself."""
    cdef Record record
    cdef char[64] text
    cdef uint64_t i, found = 0, seq
    cdef uint32_t number
    for i in range(count):
        number = store.subjects.find(text, subject_into(text, scatter(i) % distinct))
        if number:
            seq = store.spans.first_of(store.subjects, number, scatter(~i) % store.last_seq)
            found += store.read(seq, &record)
    return found


def next_filtered(StreamStore store, filters, uint64_t count):
    """A consumer that goes on from message to message, starting over at the end."""
    cdef SubjectFilter wanted = store.filter_of(filters)
    cdef Record record
    cdef uint64_t i, seq = 0, found = 0
    for i in range(count):
        seq = store.next_seq(wanted, seq + 1)
        if seq == 0:
            seq = store.next_seq(wanted, 1)
        found += store.read(seq, &record)
    return found
