# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a published message's header block says to the stream, read in one pass.

Names are compared exactly, the first of equal names counts, only CRLF ends a line. Everything that
the ingest does not do itself makes the block `unusual`.
"""
from libc.string cimport memchr, memcmp, memset


cdef inline bint named(const char* at, size_t left, const char* name, size_t length) noexcept nogil:
    return left > length and memcmp(at, name, length) == 0


cdef inline void take(Field* field, const char* at, const char* end) noexcept nogil:
    """The value from `at` to the end of its line; the first of equal names counts."""
    cdef const char* stop = at
    if field.text != NULL:
        return
    while at < end and at[0] == 32:
        at += 1
    stop = at
    while True:
        stop = <const char*>memchr(stop, 13, end - stop)
        if stop == NULL or stop + 1 == end:
            stop = end
            break
        if stop[1] == 10:
            break
        stop += 1
    field.text = at
    field.length = <uint32_t>(stop - at)


cdef void read_field(const char* at, const char* end, Fields* fields) noexcept nogil:
    """A field whose name begins with `Nats-`; `at` is behind that."""
    cdef size_t left = end - at
    if named(at, left, b"Msg-Id:", 7):
        take(&fields.message_id, at + 7, end)
    elif named(at, left, b"Expected-", 9):
        if named(at, left, b"Expected-Last-Sequence:", 23):
            take(&fields.expected_last_seq, at + 23, end)
        elif named(at, left, b"Expected-Last-Subject-Sequence:", 31):
            take(&fields.expected_last_subject_seq, at + 31, end)
        elif named(at, left, b"Expected-Last-Msg-Id:", 21):
            take(&fields.expected_last_message_id, at + 21, end)
        elif named(at, left, b"Expected-Stream:", 16):
            take(&fields.expected_stream, at + 16, end)
        elif named(at, left, b"Expected-Last-Subject-Sequence-Subject:", 39):
            fields.unusual |= HAS_OTHER
    elif named(at, left, b"TTL:", 4):
        take(&fields.ttl, at + 4, end)
        fields.unusual |= HAS_TTL
    elif named(at, left, b"Rollup:", 7):
        take(&fields.rollup, at + 7, end)
        fields.unusual |= HAS_ROLLUP
    elif named(at, left, b"Incr:", 5) or named(at, left, b"Schedule", 8) or named(at, left, b"Batch-", 6) or named(at, left, b"Stream-Source:", 14) or (
        named(at, left, b"Request-Info:", 13) or named(at, left, b"Trace-", 6)
    ):
        fields.unusual |= HAS_OTHER


cdef void read_fields(const char* block, size_t size, Fields* fields) noexcept nogil:
    cdef const char* at = block + 10
    cdef const char* end = block + size
    cdef const char* stop
    cdef bint starts = True
    memset(fields, 0, sizeof(Fields))
    if size == 0:
        return
    if size < 12 or memcmp(block, b"NATS/1.0\r\n", 10) != 0:
        fields.unusual |= HAS_OTHER
        return
    while at < end:
        if starts and end - at > 5 and memcmp(at, b"Nats-", 5) == 0:
            read_field(at + 5, end, fields)
        stop = <const char*>memchr(at, 10, end - at)
        if stop == NULL:
            break
        # Only CRLF ends a line.
        starts = (stop - 1)[0] == 13
        at = stop + 1


cdef uint64_t number_of(const Field* field) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint32_t i
    for i in range(field.length):
        if not 48 <= field.text[i] <= 57:
            return <uint64_t>-1
        value = value * 10 + (field.text[i] - 48)
    return value


cdef Rollup rollup_of(const Field* field) noexcept nogil:
    cdef char[3] lower
    cdef int i
    if field.length != 3:
        return ROLL_NOTHING
    for i in range(3):
        lower[i] = field.text[i] + 32 if 65 <= field.text[i] <= 90 else field.text[i]
    if memcmp(lower, b"sub", 3) == 0:
        return ROLL_SUBJECT
    return ROLL_ALL if memcmp(lower, b"all", 3) == 0 else ROLL_NOTHING


cdef bytes bytes_of(const Field* field):
    return None if field.text == NULL else field.text[:field.length]


def read(bytes block not None):
    """For tests: the fields that are there, and whether the block is unusual."""
    cdef Fields fields
    read_fields(block, len(block), &fields)
    return {
        "message_id": bytes_of(&fields.message_id),
        "expected_stream": bytes_of(&fields.expected_stream),
        "expected_last_seq": bytes_of(&fields.expected_last_seq),
        "expected_last_subject_seq": bytes_of(&fields.expected_last_subject_seq),
        "expected_last_message_id": bytes_of(&fields.expected_last_message_id),
    }, bool(fields.unusual)
