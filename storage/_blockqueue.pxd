# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._block cimport BlockJob
from storage._checkpoint cimport GroupJob
from storage._disk cimport DiskThread
from storage._workshop cimport Workshop


# One turn's work on its way: durable first, then in the blocks.
cdef class Batch:
    cdef uint64_t ticket
    cdef uint64_t end           # the log's position behind it
    cdef uint64_t bytes_built   # the log's at its end
    cdef list homes
    cdef uint64_t* last_seqs    # of the homes
    cdef list chunks
    cdef list scrubs
    cdef size_t erases
    cdef BlockJob** after
    cdef size_t after_count
    cdef GroupJob* checkpoints  # NULL: handed over

    cdef bint needs_blocks(self) noexcept


cdef class BlockQueue:
    cdef DiskThread disk
    cdef Workshop shop
    cdef bint at_once           # each batch has a job of its own
    cdef list homes             # what the waiting batches wrote to
    cdef size_t count           # of batches that wait
    cdef uint64_t ticket        # of the last one
    cdef uint64_t handed_position   # where in the log the first one begins
    cdef uint64_t end               # ... and the last one ends
    cdef uint64_t bytes_built       # the log's at the end of the last one
    cdef uint64_t bytes_applied     # so many of those are in their blocks
    cdef object under_way       # deque of (homes, how many batches, bytes_built): handed to the block thread

    cdef int add(self, Batch batch) except -1
    cdef uint64_t bytes_max(self) noexcept
    cdef int hand_over(self) except -1
    cdef int finished(self, BlockJob* job) except -1
