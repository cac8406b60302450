# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport BlockJob, OpenFiles
from storage._commitlog cimport Chunk, CommitLog
from storage._frames cimport FrameCache
from storage._fs cimport Files
from storage._record cimport RecordHome
from storage._views cimport ViewArena


cdef class JobOwner(RecordHome):
    cdef readonly str path
    cdef int job_done(self, BlockJob* job) except -1


# What the homes of one data directory share: the log, and the batch that is being built.
cdef class Workshop:
    cdef Files files
    cdef CommitLog log          # None while replaying
    cdef OpenFiles open_files
    cdef readonly list touched  # homes with work in the open batch
    cdef BlockJob** after       # jobs to queue behind the open batch's writes
    cdef size_t after_count
    cdef size_t after_room
    cdef size_t erases          # of the jobs in `after`
    cdef bint must_sync         # one of them removes a file, or makes a stream: in lazy mode the batch is synced too
    cdef list scrubs            # records whose log copy goes once the open batch is durable
    cdef readonly uint32_t block_size_min
    cdef readonly uint32_t block_size_max
    cdef uint64_t tick
    cdef bint keeps_log         # old segments stay, for a stream that could not be loaded
    cdef object to_frame        # (home, block number) to be rewritten in the pool
    cdef list old_maps          # of files that were replaced or removed: the pool lets go of them
    cdef object waiting         # homes with sealed blocks that wait for a checkpoint
    cdef object rewrite         # the Rewrite that the pool works on, else None
    cdef object candidates      # (home, block number) that became mostly dead
    cdef object in_flight       # lists of chunks, a list for each batch not applied yet
    cdef FrameCache frame_cache
    cdef ViewArena views        # what reads had to make, until `end_views`
    cdef Chunk chunk_of(self, const char* at)
    cdef readonly size_t maps_open
    cdef int queue_after(self, BlockJob* job) except -1
