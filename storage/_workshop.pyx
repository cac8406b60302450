# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What the homes of one data directory share: the open batch, the queues, the caches.

Contract: one owner thread. A job given to `queue_after` runs behind the writes of the open batch, and
comes back to its owner's `job_done`.
"""
import os
from collections import deque

from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc

from storage._block cimport close_block_file
from storage._sealed cimport EVERY_BLOCK, EVERY_GROUP, drop_sealed


cdef class JobOwner(RecordHome):
    """Whose jobs the block thread runs."""

    cdef int job_done(self, BlockJob* job) except -1:
        raise NotImplementedError


cdef class Workshop:
    """Shared by the homes of one directory; DataDirectory owns it."""

    def __cinit__(self, Files files, uint32_t block_size_min, uint32_t block_size_max, int files_open_max,
                  size_t frame_cache_bytes_max=32 << 20):
        self.files = files
        self.touched = []
        self.scrubs = []
        self.in_flight = deque()
        self.candidates = deque()
        self.to_frame = deque()
        self.old_maps = []
        self.waiting = set()
        self.views = ViewArena()
        self.frame_cache = FrameCache(frame_cache_bytes_max)
        self.block_size_min = block_size_min
        self.block_size_max = block_size_max
        self.open_files.count_max = files_open_max

    def close_files(self) -> None:
        """When the block thread has ended."""
        while self.open_files.newest != NULL:
            close_block_file(self.open_files.newest, &self.files.calls)
        drop_sealed(&self.open_files, EVERY_GROUP, EVERY_BLOCK, &self.files.calls)

    def __dealloc__(self):
        cdef size_t index
        for index in range(self.after_count):
            free(self.after[index])
        free(self.after)

    def leave(self, home) -> None:
        """The stream is deleted: none of its blocks is rewritten any more."""
        self.candidates = deque(entry for entry in self.candidates if entry[0] is not home)

    cdef Chunk chunk_of(self, const char* at):
        """The chunk that `at` points into; None: none that is still under way."""
        cdef Chunk chunk
        for chunks in (*self.in_flight, [self.log.chunk]):
            for chunk in chunks:
                if chunk is not None and chunk.data <= at < chunk.data + chunk.used:
                    return chunk
        return None

    cdef int queue_after(self, BlockJob* job) except -1:
        """Keep `job` until the open batch is handed over; while replaying it runs at once."""
        cdef JobOwner home
        cdef int result
        if self.log is None:
            result = job.job.run(&job.job, &self.files.calls)
            home = <JobOwner>job.owner
            home.job_done(job)
            if result < 0:
                raise OSError(-result, os.strerror(-result), home.path)
            return 0
        if self.after_count == self.after_room:
            self.after_room = self.after_room * 2 or 16
            self.after = <BlockJob**>realloc(self.after, self.after_room * sizeof(BlockJob*))
            if self.after == NULL:
                raise MemoryError
        self.after[self.after_count] = job
        self.after_count += 1
        return 0
