# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The indexes of a store as bytes, so that opening a stream does not read its messages.

    "MIDX", version 1
    messages, bytes, first_seq, last_seq, last_ts_ns
    number of subjects; each: number (as distance), count, first_seq, 1 if that is only a bound,
        last_seq - first_seq, length, text
    number of spans; each: span number (as distance), size, live, top, width, and `top` subject
        numbers of `width` bits in 64-bit little-endian words; with bit 7 of the width byte set
        each number is doubled, its low bit being HAS_TTL
    number of expiries; each: sequence, at_ns

Numbers are LEB128 except the width byte and the words. A thousand subjects cost 10 bits a message.
Spans that did not change since the snapshot before are copied, not packed again, so that a snapshot
can be taken at each checkpoint. The distances between messages of one subject are found anew while unpacking. There is no checksum
here; `decode_store` refuses what cannot be, but does not find every flipped bit.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from storage._cold cimport cool_span, pack_span, unpack_span, words_of
from storage._expiry cimport ExpiryWheel
from storage._index cimport FIRST_IS_BOUND, SUBJECT_ID_MASK, SUBJECT_LEN_MAX, Subject
from storage._seqset cimport get_number, put_number
from storage._spans cimport HAS_TTL, SPAN_SLOTS, Span, SpanIndex

cdef enum:
    VERSION = 1
    NUMBER_BYTES_MAX = 10
    TTL_IN_WIDTH = 0x80             # as `_cold` writes it
    WARM_AT_END = 2                 # spans that are likely to be asked for next
    RECORD_NUMBERS = 8              # not fewer than any entry has


cdef size_t bound_of(StreamStore store) except 0:
    """Not fewer bytes than the snapshot takes; all spans are packed after it."""
    cdef size_t total = 64 + 16 * NUMBER_BYTES_MAX, at
    cdef uint32_t number
    for number in range(1, store.subjects.subject_top):
        if store.subjects.subjects[number].count:
            total += store.subjects.subjects[number].text_len + RECORD_NUMBERS * NUMBER_BYTES_MAX
    for at in range(store.spans.head, store.spans.tail):
        pack_span(&store.spans.spans[at])
        total += RECORD_NUMBERS * NUMBER_BYTES_MAX + store.spans.spans[at].packed_len
    if store.wheel is not None:
        total += 2 * NUMBER_BYTES_MAX * store.wheel.count
    return total


cdef bytes encode_store(StreamStore store):
    cdef bytearray out = bytearray(bound_of(store))
    cdef uint8_t* start = out
    cdef uint8_t* at = start + 5
    memcpy(start, b"MIDX\x01", 5)
    at = put_number(at, store.messages)
    at = put_number(at, store.bytes)
    at = put_number(at, store.first_seq)
    at = put_number(at, store.last_seq)
    at = put_number(at, <uint64_t>store.last_ts_ns)
    at = put_subjects(at, store)
    at = put_spans(at, store)
    at = put_expiries(at, store)
    del out[at - start :]
    return bytes(out)


cdef uint8_t* put_subjects(uint8_t* at, StreamStore store) noexcept:
    cdef uint32_t number, before = 0
    cdef Subject* entry
    at = put_number(at, store.subjects.subject_count)
    for number in range(1, store.subjects.subject_top):
        entry = &store.subjects.subjects[number]
        if not entry.count:
            continue
        at = put_number(at, number - before)
        at = put_number(at, entry.count)
        at = put_number(at, entry.first_seq)
        at = put_number(at, entry.flags & FIRST_IS_BOUND)
        at = put_number(at, entry.last_seq - entry.first_seq)
        at = put_number(at, entry.text_len)
        memcpy(at, store.subjects.text_of(number), entry.text_len)
        at += entry.text_len
        before = number
    return at


cdef uint8_t* put_spans(uint8_t* at, StreamStore store) noexcept:
    cdef uint64_t before = 0
    cdef size_t i
    cdef Span* span
    at = put_number(at, store.spans.tail - store.spans.head)
    for i in range(store.spans.head, store.spans.tail):
        span = &store.spans.spans[i]
        at = put_number(at, span.number - before)
        at = put_number(at, span.size)
        at = put_number(at, span.live)
        at = put_number(at, span.top)
        memcpy(at, span.packed, span.packed_len)
        at += span.packed_len
        before = span.number
    return at


cdef uint8_t* put_expiries(uint8_t* at, StreamStore store) noexcept:
    cdef int s
    cdef uint32_t i
    if store.wheel is None:
        return put_number(at, 0)
    at = put_number(at, store.wheel.count)
    for s in range(store.wheel.slot_count()):
        for i in range(store.wheel.slots[s].count):
            at = put_number(at, store.wheel.slots[s].entries[i].seq)
            at = put_number(at, <uint64_t>store.wheel.slots[s].entries[i].at_ns)
    return at


cdef class Reader:
    """The numbers of a snapshot, one after the other; ValueError where there is none."""
    cdef const uint8_t* at
    cdef const uint8_t* end

    cdef uint64_t number(self) except? 0:
        cdef uint64_t value = 0
        cdef const uint8_t* behind = get_number(self.at, self.end, &value)
        if behind == NULL:
            raise ValueError("an index snapshot ends too early")
        self.at = behind
        return value

    cdef const uint8_t* take(self, size_t length) except NULL:
        cdef const uint8_t* taken = self.at
        if <size_t>(self.end - self.at) < length:
            raise ValueError("an index snapshot ends too early")
        self.at += length
        return taken


cdef int decode_store(StreamStore store, const uint8_t* data, size_t length) except -1:
    cdef Reader reader = Reader()
    if length < 5 or memcmp(data, b"MIDX", 4) != 0:
        raise ValueError("not an index snapshot")
    if data[4] != VERSION:
        raise ValueError(f"an index snapshot of version {data[4]}, not {VERSION}")
    reader.at = data + 5
    reader.end = data + length
    store.messages = reader.number()
    store.bytes = reader.number()
    store.first_seq = reader.number()
    store.last_seq = reader.number()
    store.last_ts_ns = <int64_t>reader.number()
    take_subjects(store, reader)
    take_spans(store, reader)
    take_expiries(store, reader)
    if reader.at != reader.end or store.spans.live != store.messages:
        raise ValueError("an index snapshot contradicts itself")
    return 0


cdef int take_subjects(StreamStore store, Reader reader) except -1:
    cdef uint64_t count = reader.number(), number = 0, text_len, i, total = 0
    cdef Subject head
    cdef Subject* entry
    cdef const uint8_t* text
    for i in range(count):
        number += reader.number()
        head.count = reader.number()
        head.first_seq = reader.number()
        head.flags = <uint8_t>reader.number()
        head.last_seq = head.first_seq + reader.number()
        text_len = reader.number()
        if number < store.subjects.subject_top or number > SUBJECT_ID_MASK or head.count == 0 or (
            text_len == 0 or text_len > SUBJECT_LEN_MAX or head.last_seq > store.last_seq
        ):
            raise ValueError("an index snapshot has an impossible subject")
        text = reader.take(text_len)
        store.subjects.place(<uint32_t>number, <const char*>text, <unsigned short>text_len)
        entry = &store.subjects.subjects[number]
        entry.count = head.count
        entry.first_seq = head.first_seq
        entry.last_seq = head.last_seq
        entry.flags = head.flags & FIRST_IS_BOUND
        total += head.count
    store.subjects.finish_places()
    if total != store.messages:
        raise ValueError("an index snapshot contradicts itself")
    return 0


cdef int take_spans(StreamStore store, Reader reader) except -1:
    cdef uint64_t count = reader.number(), number = 0, i, step, live, top
    cdef SpanIndex spans = store.spans
    cdef Span* span
    cdef uint8_t width
    cdef const uint8_t* words
    cdef uint64_t* last_seen = <uint64_t*>calloc(
        store.subjects.subject_top, sizeof(uint64_t)
    )
    if last_seen == NULL:
        raise MemoryError
    try:
        for i in range(count):
            step = reader.number()
            number += step
            if (i and step == 0) or number > store.last_seq >> 16:
                raise ValueError("an index snapshot has an impossible span")
            span = spans._add(number)
            span.size = reader.number()
            live = reader.number()
            top = reader.number()
            width = reader.take(1)[0]
            if top > SPAN_SLOTS or live > top or not 1 <= (width & 0x7F) <= 32:
                raise ValueError("an index snapshot has an impossible span")
            words = reader.take(8 * words_of(<uint32_t>top, width & 0x7F))
            spans._grow(span, <uint32_t>top)
            span.top = <uint32_t>top
            unpack_span(words, width & 0x7F, width & TTL_IN_WIDTH, span)
            if not link(span, last_seen, store) or span.live != live:
                raise ValueError("an index snapshot has an impossible span")
            spans.clock += 1
            span.version = spans.clock
            spans.live += span.live
            if i + WARM_AT_END < count:
                cool_span(span)
    finally:
        free(last_seen)
    return 0


cdef bint link(Span* span, uint64_t* last_seen, StreamStore store) noexcept nogil:
    """Find the distances and the live count; False: a number has no subject."""
    cdef uint32_t i, number
    cdef uint64_t seq = span.number << 16
    for i in range(span.top):
        number = span.subjects[i] & SUBJECT_ID_MASK
        if number:
            if number >= store.subjects.subject_top or not store.subjects.subjects[number].count:
                return False
            span.live += 1
            if last_seen[number]:
                span.distances[i] = <uint32_t>min(seq + i - last_seen[number], <uint64_t>0xFFFFFFFFu)
            last_seen[number] = seq + i
    return True


cdef int take_expiries(StreamStore store, Reader reader) except -1:
    cdef uint64_t count = reader.number(), i, seq
    if count:
        store.wheel = ExpiryWheel()
    for i in range(count):
        seq = reader.number()
        store.wheel.add(seq, <int64_t>reader.number())
    return 0
