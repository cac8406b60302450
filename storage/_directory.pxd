# cython: language_level=3
from libc.stdint cimport int64_t, uint64_t

from storage._blockhome cimport BlockHome
from storage._blockqueue cimport Batch, BlockQueue
from storage._workshop cimport Workshop
from storage._commitlog cimport CommitLog
from storage._disk cimport DiskThread
from storage._fs cimport Files
from storage._replay cimport Replay


cdef class DataDirectory:
    cdef readonly str path
    cdef readonly dict homes            # group -> BlockHome
    cdef readonly dict locked           # group -> (BlockHome, label): no key opens these; nobody writes to them
    cdef dict wrapped                   # group -> the key of an encrypted stream, as it is wrapped in its meta
    cdef readonly object keys           # DirectoryKeys; None: nothing is encrypted
    cdef object label_of
    cdef object codec_of
    cdef object pool                    # RewritePool; None: rewriting is done inside `reap`
    cdef object begin_rewrite           # runs a Rewrite, at once or in the pool
    cdef bint scrub_log                 # a stream was turned into an encrypted one: old segments go
    cdef readonly list damage           # sentences: what recovery found in the log and the layout
    cdef readonly uint64_t written_ticket   # batches up to this one are durable (or written, when lazy)
    cdef readonly uint64_t applied_ticket   # and in their blocks
    cdef dict erasing                   # ticket -> erases of that batch that are under way
    cdef readonly str failure           # why the directory is down; None: it is not
    cdef readonly bytes identity
    cdef readonly bint durable
    cdef readonly uint64_t log_bytes_max
    cdef readonly uint64_t backlog_bytes_max
    cdef readonly int maps_open_max
    cdef readonly CommitLog log
    cdef Workshop shop
    cdef Files files
    cdef DiskThread log_disk
    cdef DiskThread block_disk
    cdef bint threaded
    cdef uint64_t salt
    cdef uint64_t segment_size
    cdef uint64_t next_group
    cdef object lock
    cdef object batches                 # deque of Batch, oldest first: handed to the log
    cdef BlockQueue block_queue
    cdef list unsettled                 # (hidden directory, directory) of streams whose names do not last yet
    cdef bint closed
    cdef uint64_t submit(self) except? 0
    cdef int reap(self) except -1
    cdef int fail(self, object error) except -1
    cdef int erase_done(self, uint64_t ticket) except -1
    cdef int queue_block_work(self, Batch batch) except -1
    cdef int reap_blocks(self) except -1
    cdef int replay(self, Replay found) except -1
    cdef int want_checkpoints(self) except -1
