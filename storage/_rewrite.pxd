# cython: language_level=3
from libc.stdint cimport uint32_t, uint64_t

from storage._block cimport Block, BlockJob
from storage._blocktable cimport BlockTable
from storage._cipher cimport StreamKey
from storage._disk cimport Job
from storage._frames cimport FrameCache, FrameMemory
from storage._fs cimport FileCalls
from storage._views cimport Memory


# One block's new file in the making; everything that the pool's thread needs is in here.
cdef class Rewrite:
    cdef readonly object home
    cdef readonly uint64_t number
    cdef readonly bint spoiled      # the block changed meanwhile
    cdef readonly bint done
    cdef readonly str problem       # why there is no new file; None: there is one
    cdef readonly bint damaged      # because the old one does not hold
    cdef object map                 # keeps the old file's bytes
    cdef const char* data
    cdef size_t data_size
    cdef uint64_t group
    cdef uint64_t salt
    cdef StreamKey key
    cdef int codec
    cdef Block old
    cdef Block fresh
    cdef bytes dead
    cdef uint64_t floor
    cdef bint drop                  # leave out what is dead
    cdef uint32_t slot
    cdef FrameMemory source         # of a framed block: the frame being read
    cdef uint32_t source_row
    cdef Memory piece               # records of the frame being made
    cdef uint32_t piece_records
    cdef Memory index               # the new offsets, then the distances
    cdef Memory times               # of each run of slots
    cdef list parts
    cdef uint64_t position
    cdef list table
    cdef Memory content             # the whole new file; None: nothing is left of the block
    cdef int begin(self, const Block* block, bint drop) except -1
    cdef FrameMemory fresh_frame(self, uint32_t offset, FrameCache cache, uint32_t layout)
    cdef int grow_piece(self) except -1
    cdef const char* record_at(self) noexcept
    cdef int fill(self) noexcept nogil
    cdef int take_record(self, const char* at, uint32_t size) noexcept nogil
    cdef bint leaves_out(self, const char* at) noexcept nogil
    cdef int next_source(self) except -1
    cdef int end_frame(self) except -1
    cdef bytes summary(self, bint* complete)
    cdef int finish(self) except -1


cdef Rewrite new_rewrite(BlockTable home, const Block* block, bint drop, int codec)
cdef BlockJob* replace_job(Rewrite rewrite, Block* block) except NULL
cdef BlockJob* splice_job(BlockTable home, Block* block, list changed) except NULL
cdef int run_replace(Job* job, const FileCalls* calls) noexcept nogil
cdef int run_splice(Job* job, const FileCalls* calls) noexcept nogil
