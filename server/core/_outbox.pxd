from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len


# Bytes shared by reference count: a large payload that several connections still have to write.
cdef struct Chunk:
    uint32_t references
    size_t capacity
    size_t size
    char* data               # behind the struct, in the same allocation


# A payload that is not copied behind its line. It stands at `at` of the outbox's own bytes.
cdef struct Reference:
    size_t at
    const char* data
    size_t size
    Chunk* owner             # NULL: borrowed from a read buffer until `settle`


# What a connection still has to write. Empty, it owns no memory.
cdef struct Outbox:
    char* bytes
    size_t start             # written up to here
    size_t end
    size_t capacity
    Reference* references
    uint32_t reference_first
    uint32_t reference_end
    uint32_t reference_capacity
    uint32_t borrowed
    size_t reference_bytes


cdef enum:
    BLOCK_BYTES = 65536          # an outbox's usual block; it comes from a pool
    IOVECS_MAX = 256


cdef Chunk* chunk_new(size_t capacity) noexcept nogil
cdef void chunk_release(Chunk* chunk) noexcept nogil

# How much is unwritten.
cdef inline size_t outbox_pending(const Outbox* box) noexcept nogil:
    return box.end - box.start + box.reference_bytes

# Room for `count` bytes at the end, or NULL without memory. The caller adds what it wrote to `end`.
cdef inline char* outbox_room(Outbox* box, size_t count) noexcept nogil:
    if box.capacity - box.end >= count:
        return box.bytes + box.end
    return outbox_grow(box, count)

cdef char* outbox_grow(Outbox* box, size_t count) noexcept nogil
cdef bint outbox_refer(Outbox* box, const char* data, size_t size, Chunk* owner) noexcept nogil
cdef int outbox_vectors(const Outbox* box, iovec* vectors, int maximum) noexcept nogil
cdef void outbox_written(Outbox* box, size_t count) noexcept nogil
# Makes borrowed references the outbox's own before their bytes change. False without memory.
cdef bint outbox_own(Outbox* box) noexcept nogil
cdef void outbox_clear(Outbox* box) noexcept nogil
cdef int64_t live_chunks() noexcept nogil
