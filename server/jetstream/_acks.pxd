"""The reply subjects of delivered messages: built, and read again when an ack comes on one.

`$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>`, or with
`<domain>.<account hash>` before the stream and more tokens allowed at the end.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy


cdef enum:
    SHORT_TOKENS = 9
    LONG_TOKENS = 11
    NUMBER_MAX = 20         # digits
    NUMBERS = 5


cdef struct AckSubject:
    const char* key         # <stream>.<consumer>
    size_t key_len
    const char* place       # <domain>.<account hash>, NULL in the short form
    size_t place_len
    uint64_t deliveries
    uint64_t seq
    uint64_t consumer_seq


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static const char martlet_pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
        "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
        "8081828384858687888990919293949596979899";
    static inline char *martlet_put_number(char *to, uint64_t value) {
        char digits[20];
        int at = 20;
        while (value >= 100) {
            at -= 2;
            memcpy(digits + at, martlet_pairs + 2 * (value % 100), 2);
            value /= 100;
        }
        if (value >= 10) {
            at -= 2;
            memcpy(digits + at, martlet_pairs + 2 * value, 2);
        } else {
            digits[--at] = (char)('0' + value);
        }
        memcpy(to, digits + at, (size_t)(20 - at));
        return to + (20 - at);
    }
    """
    char* put_number "martlet_put_number"(char* to, uint64_t value) noexcept nogil


cdef inline size_t put_ack_subject(
    char* to, const char* prefix, size_t prefix_len, uint64_t deliveries, uint64_t seq,
    uint64_t consumer_seq, uint64_t ts_ns, uint64_t pending
) noexcept nogil:
    """`to` has room for the prefix and NUMBERS * (NUMBER_MAX + 1) more bytes."""
    cdef char* at = to + prefix_len
    memcpy(to, prefix, prefix_len)
    at = put_number(at, deliveries)
    at[0] = c'.'
    at = put_number(at + 1, seq)
    at[0] = c'.'
    at = put_number(at + 1, consumer_seq)
    at[0] = c'.'
    at = put_number(at + 1, ts_ns)
    at[0] = c'.'
    at = put_number(at + 1, pending)
    return at - to


cdef inline bint read_number(const char* text, const char* end, uint64_t* value) noexcept nogil:
    cdef uint64_t found = 0
    if text == end or end - text > 19:
        return False
    while text < end:
        if <uint8_t>text[0] - 48 > 9 or text[0] < 48:
            return False
        found = 10 * found + <uint8_t>(text[0] - 48)
        text += 1
    value[0] = found
    return True


cdef inline bint read_delay(const char* text, size_t length, int64_t* delay_ns) noexcept nogil:
    """What a -NAK carries as all clients write it, `{"delay":123}`; False: look closer."""
    cdef const char* end = text + length
    cdef uint64_t value = 0
    if length < 11 or memcmp(text, b'{"delay":', 9) != 0 or (end - 1)[0] != c"}":
        return False
    text += 9
    while text[0] == c" ":
        text += 1
    if not read_number(text, end - 1, &value) or value > <uint64_t>1 << 62:
        return False
    delay_ns[0] = <int64_t>value
    return True


cdef inline bint read_ack_subject(
    const char* subject, size_t length, AckSubject* out
) noexcept nogil:
    """False when this is no reply subject of a delivered message."""
    cdef const char* end = subject + length
    cdef const char* starts[LONG_TOKENS + 1]
    cdef const char* at = subject
    cdef int tokens = 1, first = 2
    starts[0] = subject
    while tokens <= LONG_TOKENS:
        at = <const char*>memchr(at, c'.', end - at)
        if at == NULL:
            break
        at += 1
        starts[tokens] = at
        tokens += 1
    if at == NULL:
        starts[tokens] = end + 1
    if tokens >= LONG_TOKENS:
        first = 4
        out.place = starts[2]
        out.place_len = starts[4] - 1 - starts[2]
    elif tokens == SHORT_TOKENS:
        out.place = NULL
        out.place_len = 0
    else:
        return False
    out.key = starts[first]
    out.key_len = starts[first + 2] - 1 - starts[first]
    return (
        read_number(starts[first + 2], starts[first + 3] - 1, &out.deliveries)
        and read_number(starts[first + 3], starts[first + 4] - 1, &out.seq)
        and read_number(starts[first + 4], starts[first + 5] - 1, &out.consumer_seq)
    )
