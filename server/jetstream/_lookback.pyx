# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a stream that starts finds in its own messages: ids inside its window, its schedules.

Contract. Both walk over records where they lie and make no Python object for a message that says
nothing of the kind: there may be millions. Only what lives counts.
"""
from libc.stdint cimport uint32_t, uint64_t

from server.jetstream._dedupe cimport DedupeWindow
from server.jetstream._fields cimport Fields, read_fields
from storage._record cimport Record
from storage._store cimport StreamStore

cdef extern from *:
    """
    #include <string.h>
    """
    void* memmem(const void* text, size_t size, const void* wanted, size_t wanted_size) nogil

cdef bytes SCHEDULE_NAMES = b"\r\nNats-Schedule"
cdef bytes SCHEDULE_FIELD = b"\r\nNats-Schedule:"
cdef bytes SCHEDULER_FIELD = b"\r\nNats-Scheduler:"


cdef class Walk:
    """What a step of a walk fills."""
    cdef StreamStore store
    cdef DedupeWindow window
    cdef list schedules
    cdef dict fired


cdef inline bint is_live(Walk walk, const Record* record) noexcept:
    return record.skip_count == 0 and walk.store.spans.slot(record.seq) != 0


def lives(StreamStore store not None, uint64_t seq):
    return store.spans.slot(seq) != 0


cdef int note_id(void* context, const Record* record) except -1:
    cdef Walk walk = <Walk>context
    cdef Fields fields
    if record.hdr_len == 0 or not is_live(walk, record):
        return 0
    read_fields(record.hdr, record.hdr_len, &fields)
    if fields.message_id.length:
        walk.window.reserve(walk.store.last_seq + 1 - record.seq)
        walk.window.add(fields.message_id.text, fields.message_id.length, record.seq, record.ts_ns)
    return 0


def remember_ids(StreamStore store not None, DedupeWindow window not None, uint64_t first):
    cdef Walk walk = Walk()
    walk.store, walk.window = store, window
    store.home.visit(first, note_id, <void*>walk)


cdef const char* find(const Record* record, bytes text) noexcept:
    return <const char*>memmem(record.hdr, record.hdr_len, <const char*>text, len(text))


cdef bytes field_at(const Record* record, const char* at):
    """The value that begins at `at`, without blanks before it."""
    cdef size_t left = record.hdr + record.hdr_len - at
    cdef const char* end = <const char*>memmem(at, left, b"\r\n", 2)
    return at[: left if end == NULL else end - at].lstrip(b" ")


cdef int note_schedule(void* context, const Record* record) except -1:
    cdef Walk walk = <Walk>context
    cdef const char* at
    if record.hdr_len == 0 or find(record, SCHEDULE_NAMES) == NULL or not is_live(walk, record):
        return 0
    if find(record, SCHEDULE_FIELD) != NULL:
        walk.schedules.append(record.seq)
    at = find(record, SCHEDULER_FIELD)
    if at != NULL:
        walk.fired[field_at(record, at + len(SCHEDULER_FIELD))] = record.seq
    return 0


def scheduling(StreamStore store not None):
    cdef Walk walk = Walk()
    walk.store, walk.schedules, walk.fired = store, [], {}
    store.home.visit(0, note_schedule, <void*>walk)
    return walk.schedules, walk.fired
