# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""From the log to the blocks: what is durable waits a little, so that one write has many records of a stream.

Contract: `add` takes batches in order. `hand_over` gives what waits to the block thread, as one job
that comes back to `finished`; whoever queues work behind a batch's records calls it first. What
waits is bounded by bytes of the log (more for many streams, so that each write is worth its call), by
batches, by the writes of one stream, and by the owner, who now and then hands over the rest. Until then
reads find the records in the log's chunks.
"""
from collections import deque

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc

from storage._block cimport JOB_APPLY, Extent, run_apply
from storage._blockhome cimport BlockHome
from storage._checkpoint cimport free_group
from storage._disk cimport Job

cdef enum:
    WAITING_BYTES_MIN = 1 << 20     # fewer need not be handed over
    WAITING_BYTES_MAX = 16 << 20
    WAITING_BYTES_OF_HOME = 16 << 10
    WAITING_BATCHES_MAX = 1024
    WAITING_WRITES_MAX = 128        # batches with writes of one home: reads look through them


cdef class Batch:
    def __dealloc__(self):
        free(self.last_seqs)
        free(self.after)
        if self.checkpoints != NULL:
            free_group(self.checkpoints)

    cdef bint needs_blocks(self) noexcept:
        """Something is queued behind its records."""
        return self.after_count > 0 or self.checkpoints.count > 0 or self.checkpoints.names or self.erases > 0


cdef class BlockQueue:
    def __cinit__(self, Workshop shop, DiskThread disk, bint at_once):
        self.shop = shop
        self.disk = disk
        self.at_once = at_once
        self.homes = []
        self.under_way = deque()

    cdef int add(self, Batch batch) except -1:
        """Its records are durable."""
        cdef BlockHome home
        cdef size_t index = 0
        cdef bint many_writes = False
        for home in batch.homes:
            if home.pending_count - home.pending_head >= WAITING_WRITES_MAX:
                many_writes = True
            home.durable_seq = batch.last_seqs[index]
            index += 1
            if not home.waits_for_blocks:
                home.waits_for_blocks = True
                self.homes.append(home)
        self.count += 1
        self.ticket = batch.ticket
        self.end = batch.end
        self.bytes_built = batch.bytes_built
        if self.at_once or batch.needs_blocks() or (
            self.count >= (WAITING_WRITES_MAX if many_writes else WAITING_BATCHES_MAX)
        ) or self.end - self.handed_position >= self.bytes_max():
            self.hand_over()
        return 0

    cdef uint64_t bytes_max(self) noexcept:
        """How much of the log may wait."""
        cdef uint64_t wanted = <uint64_t>len(self.homes) * WAITING_BYTES_OF_HOME
        return min(max(wanted, <uint64_t>WAITING_BYTES_MIN), <uint64_t>WAITING_BYTES_MAX)

    cdef int hand_over(self) except -1:
        cdef BlockJob* job
        cdef BlockHome home
        cdef size_t count = 0
        if self.count == 0:
            return 0
        self.handed_position = self.end
        for home in self.homes:
            count += home.copy_extents(self.ticket, NULL)
        job = <BlockJob*>calloc(1, sizeof(BlockJob))
        if job == NULL:
            raise MemoryError
        job.kind = JOB_APPLY
        job.job.run = run_apply
        job.ticket = self.ticket
        job.extents = <Extent*>malloc((count or 1) * sizeof(Extent))
        if job.extents == NULL:
            free(job)
            raise MemoryError
        for home in self.homes:
            job.count += home.copy_extents(self.ticket, job.extents + job.count)
            home.handed_ticket = self.ticket
            home.waits_for_blocks = False
        self.under_way.append((self.homes, self.count, self.bytes_built))
        self.homes = []
        self.count = 0
        self.disk.submit(&job.job)
        return 0

    cdef int finished(self, BlockJob* job) except -1:
        cdef BlockHome home
        homes, count, bytes_built = self.under_way.popleft()
        if job.job.result == 0:
            self.bytes_applied = bytes_built
            for home in homes:
                home.applied(job.ticket)
            for _ in range(count):
                self.shop.in_flight.popleft()
        free(job.extents)
        free(job)
        return 0
