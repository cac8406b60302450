# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._blockhome cimport BlockHome
from storage._blockqueue cimport Batch, BlockQueue
from storage._checkpoint cimport GroupJob
from storage._workshop cimport Workshop
from storage._commitlog cimport CommitLog
from storage._disk cimport DiskThread
from storage._fs cimport Files


# The part of a DataDirectory that hands over batches and takes back what is done.
cdef class BatchedDirectory:
    cdef readonly str path
    cdef readonly dict homes            # group -> BlockHome
    cdef object pool                    # RewritePool; None: rewriting is done inside `reap`
    cdef object begin_rewrite           # runs a Rewrite, at once or in the pool
    cdef readonly uint64_t written_ticket   # batches up to this one are durable (or written, when lazy)
    cdef readonly uint64_t applied_ticket   # and in their blocks
    cdef dict erasing                   # ticket -> erases of that batch that are under way
    cdef readonly str failure           # why the directory is down; None: it is not
    cdef readonly bint durable
    cdef readonly uint64_t log_bytes_max
    cdef readonly uint64_t backlog_bytes_max
    cdef readonly int maps_open_max
    cdef readonly CommitLog log
    cdef Workshop shop
    cdef Files files
    cdef DiskThread log_disk
    cdef DiskThread block_disk
    cdef uint64_t segment_size
    cdef object batches                 # deque of Batch, oldest first: handed to the log
    cdef BlockQueue block_queue
    cdef dict leaving                   # group of a deleted stream that has files still -> the ticket of its deletion
    cdef set left                       # groups of those whose files are gone, though perhaps not for good
    cdef dict graves                    # group of a deleted stream -> the oldest log segment with frames of it
    cdef set sealing                    # those of `left` that a group of checkpoints under way makes last
    cdef bint names_wanted              # some of them hold an old log segment
    cdef dict behind                    # log segment -> the homes, as keys, that need none older
    cdef bint closed
    cdef uint64_t submit(self) except? 0
    cdef int keep_bounds(self) except -1
    cdef int reap(self) except -1
    cdef int let_go_maps(self, uint64_t tick) except -1
    cdef int fail(self, object error) except -1
    cdef int erase_done(self, uint64_t ticket) except -1
    cdef int queue_block_work(self, Batch batch) except -1
    cdef int reap_blocks(self) except -1
    cdef int want_checkpoints(self) except -1
    cdef int checkpoints_done(self, GroupJob* group) except -1
    cdef int count_behind(self, BlockHome home) except -1
    cdef int files_gone(self, BlockHome home) except -1
    cdef int seal_names(self, GroupJob* group) except -1
