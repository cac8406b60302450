from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t, uintptr_t

from server.core._outbox cimport Chunk
from server.core._sublist cimport Sub


cdef enum:
    TAIL_BYTES = 24          # " <header size> <size>\r\n"


# One published message on its way. The pointers live until the router returns.
cdef struct Msg:
    const char* subject
    const char* reply            # NULL when there is none
    const char* payload          # the header block, the body, and CRLF behind it
    Chunk* owner                 # of the payload's bytes; NULL: a read buffer's
    void* origin                 # the publishing Client, NULL for the server itself
    uint64_t line_id             # equal for messages of one publish line that repeats; never 0
    uint32_t subject_len
    uint32_t reply_len
    int32_t header_size          # 0: no headers
    int32_t size                 # headers and body
    uint8_t tail_len             # the end of the MSG line, once it is built
    uint8_t plain_tail_len       # the same for those who get no headers
    char[TAIL_BYTES] tail
    char[TAIL_BYTES] plain_tail


cdef extern from *:
    void __builtin_prefetch(const void* address) nogil


cdef inline void fetch_ahead(const void* start, size_t size) noexcept nogil:
    """The memory is on its way to the caches while other work is done; the address may be any."""
    cdef uintptr_t line = <uintptr_t> start & ~<uintptr_t> 63
    while line < <uintptr_t> start + size:
        __builtin_prefetch(<const void*> line)
        line += 64


# Who may receive. `deliver` runs inside the router: it may not free a Sub, and it answers whether
# it took the message.
cdef class Sink:
    cdef int deliver(self, Msg* message, Sub* sub) noexcept
    # The same for a message that is traced: `trace` (core.msgtrace.MessageTrace) is told about it,
    # and may ask that nothing but that happens.
    cdef int deliver_traced(self, Msg* message, Sub* sub, object trace) noexcept
    # A message is likely to come soon: ask for the memory that its delivery will touch, as far as it
    # can be found from what the steps before have asked for. Steps count from 0, which is asked
    # when the sink itself is there.
    cdef void foresee(self, int step) noexcept
    # The end of the turn in which the sink marked itself dirty.
    cdef void end_turn(self) noexcept
    # Borrowed bytes are about to change.
    cdef void settle(self) noexcept
