# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._block cimport BlockJob
from storage._blockhome cimport BlockHome
from storage._fs cimport FileCalls

cdef enum:
    STATE_HEAD = 128


# Checkpoints that share their syncs; `job.owner` is NULL, `job.directory` the folder of all streams.
cdef struct GroupJob:
    BlockJob job
    BlockJob** members
    size_t count
    bint names              # a name in that folder does not last yet

cdef int sync_file_at(const FileCalls* calls, const char* directory, const char* name) noexcept nogil
cdef BlockJob* checkpoint_job(BlockHome home, uint64_t segment, bint clean) except NULL
cdef GroupJob* group_job(str streams, size_t room) except NULL
cdef size_t add_checkpoint(GroupJob* group, BlockHome home, uint64_t segment, bint clean) except? 0
cdef int end_group(GroupJob* group) except -1
cdef void free_group(GroupJob* group) noexcept
