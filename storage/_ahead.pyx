# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads blocks ahead of a visit that goes through all of them: a second core checks, the first indexes.

Contract:
- `add` blocks in the order of the visit, at most AHEAD_MAX that were not asked for; they stay mapped
  with their index until they were asked for, or the reader is gone.
- `holds` says that every record of the block was found whole. It waits for a check under way; one that
  was not begun is left to the caller, as is everything about a block that has damage.
- The thread ends with the object.
"""
from libc.string cimport memset

from storage._block cimport BLOCK_FRAMED
from storage._codec cimport check_record, load64

cdef extern from "pthread.h" nogil:
    int pthread_create(pthread_t* thread, void* attributes, void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* lock, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* lock)
    int pthread_mutex_lock(pthread_mutex_t* lock)
    int pthread_mutex_unlock(pthread_mutex_t* lock)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* lock)
    int pthread_cond_broadcast(pthread_cond_t* condition)

cdef enum:
    QUEUED = 0
    UNDER_WAY = 1
    HOLDS = 2
    LEFT = 3        # to the visit: damaged, or not begun in time


cdef bint all_hold(const AheadBlock* block, uint64_t salt) noexcept nogil:
    cdef uint32_t slot
    cdef uint32_t offset
    for slot in range(block.slots):
        offset = block.offsets[slot]
        if offset == 0:
            continue
        if offset >= block.size or check_record(block.data + offset, block.size - offset, salt) == 0:
            return False
        if load64(block.data + offset + 8) != block.first_seq + (
                block.deltas[slot] if block.deltas != NULL else slot):
            return False
    return True


cdef void* thread_main(void* argument) noexcept nogil:
    cdef AheadQueue* queue = <AheadQueue*>argument
    cdef AheadBlock* block
    cdef bint whole
    pthread_mutex_lock(&queue.lock)
    while not queue.stopping:
        if queue.begun == queue.added:
            pthread_cond_wait(&queue.changed, &queue.lock)
            continue
        block = &queue.blocks[queue.begun % AHEAD_MAX]
        queue.begun += 1
        block.state = UNDER_WAY
        pthread_mutex_unlock(&queue.lock)
        whole = all_hold(block, queue.salt)
        pthread_mutex_lock(&queue.lock)
        block.state = HOLDS if whole else LEFT
        pthread_cond_broadcast(&queue.changed)
    pthread_mutex_unlock(&queue.lock)
    return NULL


cdef bint wait_for(AheadQueue* queue) noexcept nogil:
    """The oldest block that was not asked for."""
    cdef AheadBlock* block = &queue.blocks[queue.taken % AHEAD_MAX]
    pthread_mutex_lock(&queue.lock)
    if queue.begun == queue.taken:
        queue.begun += 1
        block.state = LEFT
    while block.state == UNDER_WAY:
        pthread_cond_wait(&queue.changed, &queue.lock)
    queue.taken += 1
    pthread_mutex_unlock(&queue.lock)
    return block.state == HOLDS


cdef class AheadReader:
    """See the module."""

    def __cinit__(self, uint64_t salt):
        memset(&self.queue, 0, sizeof(AheadQueue))
        self.queue.salt = salt
        pthread_mutex_init(&self.queue.lock, NULL)
        pthread_cond_init(&self.queue.changed, NULL)
        # Without the thread all is left to the visit.
        self.started = pthread_create(&self.thread, NULL, thread_main, &self.queue) == 0

    def __dealloc__(self):
        with nogil:
            pthread_mutex_lock(&self.queue.lock)
            self.queue.stopping = True
            pthread_cond_broadcast(&self.queue.changed)
            pthread_mutex_unlock(&self.queue.lock)
            if self.started:
                pthread_join(self.thread, NULL)
        pthread_cond_destroy(&self.queue.changed)
        pthread_mutex_destroy(&self.queue.lock)

    cdef void add(self, const Block* block) noexcept:
        cdef AheadBlock* item = &self.queue.blocks[self.queue.added % AHEAD_MAX]
        if block.flags & BLOCK_FRAMED or block.written < block.data_end or block.map == NULL:
            return
        pthread_mutex_lock(&self.queue.lock)
        item.block = block
        item.data, item.size = block.data, min(<uint64_t>block.data_end, <uint64_t>block.data_size)
        item.offsets, item.deltas = block.offsets, block.deltas
        item.first_seq, item.slots = block.first_seq, block.slots
        item.state = QUEUED
        self.queue.added += 1
        pthread_cond_broadcast(&self.queue.changed)
        pthread_mutex_unlock(&self.queue.lock)

    cdef bint holds(self, const Block* block) noexcept:
        cdef bint whole
        if self.queue.taken == self.queue.added or self.queue.blocks[self.queue.taken % AHEAD_MAX].block != block:
            return False
        with nogil:
            whole = wait_for(&self.queue)
        return whole
