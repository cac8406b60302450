# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How messages of a store end by time: by the stream's age limit, or by a time to live of their own.

Both are done in slices. What leaves a subject empty is named, so that the caller stores a marker.
"""
from libc.stdint cimport INT64_MAX, uint64_t

from storage._headers cimport is_marker, ttl_of
from storage._index cimport SUBJECT_ID_MASK
from storage._record cimport Record
from storage._spans cimport HAS_TTL

from storage.ports import Expired

cdef enum:
    DUE_AT_ONCE = 256


cdef object expire(StreamStore store, int64_t now_ns, uint32_t messages_max):
    cdef list markers = []
    cdef uint32_t looked = 0
    cdef uint64_t before = store.messages
    if store.age_max_ns:
        looked = expire_aged(store, now_ns, messages_max, markers)
    if store.wheel is not None and looked < messages_max:
        looked += expire_due(store, now_ns, messages_max - looked, markers)
    return Expired(before - store.messages, looked >= messages_max, tuple(markers))


cdef int expire_aged(StreamStore store, int64_t now_ns, uint32_t limit, list markers) except -1:
    """From the first on that is not exempt; how many it looked at.

    What cannot be read is as young, or as exempt, as it may be: its file can be put back.
    """
    cdef int64_t latest_ns = now_ns - store.age_max_ns
    cdef uint64_t seq = store.spans.next_live(max(store.aged_seq, store.first_seq))
    cdef uint32_t looked = 0
    cdef bint readable
    cdef Record record
    while seq and looked < limit:
        readable = store.home.read(seq, &record)
        if (record.ts_ns if readable else store.home.latest_time(seq)) > latest_ns:
            break
        if store.spans.slot(seq) & HAS_TTL and (not readable or ttl_of(record.hdr, record.hdr_len) < 0):
            store.aged_seq = seq + 1
            seq = store.spans.next_live(seq + 1)
            looked += 1
            continue
        if readable and store.marker_ttl_ns:
            note_marker(store, &record, markers)
        store.remove(seq, False)
        store.aged_seq = seq + 1
        seq = store.spans.next_live(seq + 1)
        looked += 1
    return looked


cdef int expire_due(StreamStore store, int64_t now_ns, uint32_t limit, list markers) except -1:
    """What the wheel says; how many entries it took."""
    cdef uint64_t[DUE_AT_ONCE] due
    cdef uint32_t count, i, taken = 0
    cdef Record record
    while taken < limit:
        count = store.wheel.take_due(now_ns, due, min(limit - taken, <uint32_t>DUE_AT_ONCE))
        if count == 0:
            break
        taken += count
        # Lowest first, so that of several messages of a subject the last one leaves the marker.
        sort_sequences(due, count)
        for i in range(count):
            if not store.spans.slot(due[i]) & HAS_TTL:
                store.wheel.stale -= min(store.wheel.stale, <uint64_t>1)
                continue
            if store.marker_ttl_ns and store.home.read(due[i], &record):
                note_marker(store, &record, markers)
            store.remove(due[i], False)
            # `remove` counted an entry as stale that is not in the wheel any more.
            store.wheel.stale -= min(store.wheel.stale, <uint64_t>1)
    return taken


cdef int note_marker(StreamStore store, const Record* record, list markers) except -1:
    """Whether this is its subject's last message and not a marker itself."""
    cdef uint32_t number = store.spans.slot(record.seq) & SUBJECT_ID_MASK
    if store.subjects.subjects[number].count > 1:
        return 0
    if record.hdr_len and is_marker(record.hdr, record.hdr_len):
        return 0
    markers.append(record.subject[: record.subject_len].decode("utf-8", "surrogateescape"))
    return 1


cdef object next_expiry(StreamStore store):
    """When `expire` should be called next; None: never."""
    cdef int64_t when = INT64_MAX
    cdef uint64_t seq
    cdef Record record
    if store.age_max_ns and store.messages:
        seq = store.spans.next_live(max(store.aged_seq, store.first_seq))
        if seq:
            when = record.ts_ns if store.home.read(seq, &record) else store.home.latest_time(seq)
            when += store.age_max_ns
    if store.wheel is not None:
        when = min(when, store.wheel.next_due())
    return None if when == INT64_MAX else when


cpdef bytes marker_headers(int64_t ttl_ns):
    """Of the message that says why its subject's last message went."""
    text = duration_text(ttl_ns // 1_000_000_000)
    return (
        f"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: {text}\r\nNats-Rollup: sub\r\n\r\n"
    ).encode()


cdef void sort_sequences(uint64_t* sequences, uint32_t count) noexcept nogil:
    """Insertion sort: a few, and mostly in order."""
    cdef uint32_t i, k
    cdef uint64_t value
    for i in range(1, count):
        value = sequences[i]
        k = i
        while k and sequences[k - 1] > value:
            sequences[k] = sequences[k - 1]
            k -= 1
        sequences[k] = value


def duration_text(int64_t seconds):
    """As Go prints a duration: 90 seconds are `1m30s`."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{text}{rest}s"
