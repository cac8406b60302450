from libc.string cimport memchr, memcmp
from posix.strings cimport strncasecmp

from server.core._client cimport Client
from server.wire._parser cimport PubArgs


cdef inline bint names_trace(const char* block, int size, bint parents) noexcept nogil:
    """Whether a header block may ask for a trace; `parents`: a `traceparent` may as well."""
    cdef const char* end = block + size
    cdef const char* at = block
    while True:
        at = <const char*> memchr(at, c'\n', end - at)
        if at == NULL:
            return False
        at += 1
        if end - at < 14:
            return False
        if at[0] == c'N':
            if end - at > 15 and memcmp(at, b"Nats-Trace-Dest", 15) == 0:
                return True
        elif parents and (at[0] | 32) == c't' and strncasecmp(at, b"traceparent", 11) == 0:
            return True


# A message whose headers may ask for a trace. The answer is a Client's to its parser.
cdef int publish_traced(Client client, const PubArgs* args, const char* payload) noexcept
# One that is too large for its connection: only the beginning of its headers may be there.
cdef int trace_refused(Client client, const PubArgs* args, const char* block, size_t size) noexcept
