# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Bytes that wait for a connection's next write.

Contract: lines and small payloads are one growing block; a large payload is a reference between
two stretches of it. A reference without an owner is borrowed from the read buffer and must be
written, or taken over by `outbox_own`, before that buffer is used again. An empty outbox gives its
block back, so an idle connection costs nothing here. How much may wait is the client's business.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef enum:
    POOL_BLOCKS = 64             # spare blocks kept for the next turn: 4 MiB

cdef char* pool[POOL_BLOCKS]
cdef int pooled = 0
cdef int64_t chunks = 0
cdef int64_t blocks = 0


cdef char* take_block() noexcept nogil:
    global pooled, blocks
    blocks += 1
    if pooled:
        pooled -= 1
        return pool[pooled]
    return <char*> malloc(BLOCK_BYTES)


cdef void give_block(char* block, size_t capacity) noexcept nogil:
    global pooled, blocks
    blocks -= 1
    if capacity == BLOCK_BYTES and pooled < POOL_BLOCKS:
        pool[pooled] = block
        pooled += 1
    else:
        free(block)


cdef Chunk* chunk_new(size_t capacity) noexcept nogil:
    global chunks
    cdef Chunk* chunk = <Chunk*> malloc(sizeof(Chunk) + capacity)
    if chunk == NULL:
        return NULL
    chunks += 1
    chunk.references = 1
    chunk.capacity = capacity
    chunk.size = 0
    chunk.data = <char*> chunk + sizeof(Chunk)
    return chunk


cdef void chunk_release(Chunk* chunk) noexcept nogil:
    global chunks
    chunk.references -= 1
    if chunk.references == 0:
        chunks -= 1
        free(chunk)


cdef int64_t live_chunks() noexcept nogil:
    return chunks


cdef void rebase(Outbox* box) noexcept nogil:
    """Move what is unwritten to the front."""
    cdef uint32_t i
    if box.start == 0:
        return
    memmove(box.bytes, box.bytes + box.start, box.end - box.start)
    for i in range(box.reference_first, box.reference_end):
        box.references[i].at -= box.start
    box.end -= box.start
    box.start = 0


cdef char* outbox_grow(Outbox* box, size_t count) noexcept nogil:
    global blocks
    cdef size_t capacity
    cdef char* bigger
    if box.bytes == NULL:
        if count <= BLOCK_BYTES:
            box.bytes = take_block()
            if box.bytes == NULL:
                return NULL
            box.capacity = BLOCK_BYTES
            return box.bytes
    elif box.start >= box.capacity // 2:
        rebase(box)
        if box.capacity - box.end >= count:
            return box.bytes + box.end
    capacity = box.capacity if box.capacity else BLOCK_BYTES
    while capacity - box.end < count:
        capacity *= 2
    if box.capacity == BLOCK_BYTES or box.bytes == NULL:
        bigger = <char*> malloc(capacity)
        if bigger == NULL:
            return NULL
        if box.bytes != NULL:
            memcpy(bigger, box.bytes, box.end)
            give_block(box.bytes, box.capacity)
        blocks += 1
    else:
        bigger = <char*> realloc(box.bytes, capacity)
        if bigger == NULL:
            return NULL
    box.bytes = bigger
    box.capacity = capacity
    return box.bytes + box.end


cdef bint outbox_refer(Outbox* box, const char* data, size_t size, Chunk* owner) noexcept nogil:
    cdef Reference* reference
    cdef Reference* bigger
    cdef uint32_t count
    if box.reference_end == box.reference_capacity:
        if box.reference_first > box.reference_capacity // 2:
            count = box.reference_end - box.reference_first
            memmove(box.references, box.references + box.reference_first, count * sizeof(Reference))
            box.reference_first = 0
            box.reference_end = count
        else:
            count = 2 * box.reference_capacity if box.reference_capacity else 32
            bigger = <Reference*> realloc(box.references, count * sizeof(Reference))
            if bigger == NULL:
                return False
            box.references = bigger
            box.reference_capacity = count
    reference = box.references + box.reference_end
    reference.at = box.end
    reference.data = data
    reference.size = size
    reference.owner = owner
    box.reference_end += 1
    box.reference_bytes += size
    if owner != NULL:
        owner.references += 1
    else:
        box.borrowed += 1
    return True


cdef int outbox_vectors(const Outbox* box, iovec* vectors, int maximum) noexcept nogil:
    """The next bytes to write, in order; how many vectors were filled."""
    cdef int count = 0
    cdef size_t at = box.start
    cdef uint32_t i = box.reference_first
    cdef const Reference* reference
    while i < box.reference_end and count + 2 <= maximum:
        reference = box.references + i
        if reference.at > at:
            vectors[count].iov_base = box.bytes + at
            vectors[count].iov_len = reference.at - at
            at = reference.at
            count += 1
        vectors[count].iov_base = <void*> reference.data
        vectors[count].iov_len = reference.size
        count += 1
        i += 1
    if i == box.reference_end and box.end > at and count < maximum:
        vectors[count].iov_base = box.bytes + at
        vectors[count].iov_len = box.end - at
        count += 1
    return count


cdef void drop_reference(Outbox* box, Reference* reference) noexcept nogil:
    if reference.owner != NULL:
        chunk_release(reference.owner)
    else:
        box.borrowed -= 1


cdef void outbox_written(Outbox* box, size_t count) noexcept nogil:
    """The first `count` unwritten bytes are gone."""
    cdef Reference* reference
    cdef size_t part
    while box.reference_first < box.reference_end:
        reference = box.references + box.reference_first
        part = reference.at - box.start
        if count < part:
            box.start += count
            return
        box.start += part
        count -= part
        if count < reference.size:
            reference.data += count
            reference.size -= count
            box.reference_bytes -= count
            return
        count -= reference.size
        box.reference_bytes -= reference.size
        drop_reference(box, reference)
        box.reference_first += 1
    box.start += count
    if box.start == box.end:
        outbox_clear(box)


cdef bint outbox_own(Outbox* box) noexcept nogil:
    cdef uint32_t i
    cdef Reference* reference
    cdef Chunk* chunk
    if box.borrowed == 0:
        return True
    for i in range(box.reference_first, box.reference_end):
        reference = box.references + i
        if reference.owner != NULL:
            continue
        chunk = chunk_new(reference.size)
        if chunk == NULL:
            return False
        memcpy(chunk.data, reference.data, reference.size)
        reference.data = chunk.data
        reference.owner = chunk
        box.borrowed -= 1
    return True


cdef void outbox_clear(Outbox* box) noexcept nogil:
    """Forget everything and give the memory back."""
    while box.reference_first < box.reference_end:
        drop_reference(box, box.references + box.reference_first)
        box.reference_first += 1
    if box.bytes != NULL:
        give_block(box.bytes, box.capacity)
    if box.references != NULL:
        free(box.references)
    box.bytes = NULL
    box.references = NULL
    box.start = box.end = box.capacity = 0
    box.reference_first = box.reference_end = box.reference_capacity = 0
    box.borrowed = 0
    box.reference_bytes = 0


def live_buffers() -> tuple[int, int]:
    """(blocks in use, chunks alive): both zero when no connection has output."""
    return blocks, chunks
