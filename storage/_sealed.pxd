# cython: language_level=3
from libc.stdint cimport uint64_t

from storage._block cimport BlockFile, OpenFiles
from storage._disk cimport Job
from storage._fs cimport FileCalls

cdef enum:
    EVERY_GROUP = 0
    EVERY_BLOCK = 0

cdef int keep_sealed(BlockFile* file, uint64_t group, uint64_t number, const FileCalls* calls) noexcept nogil
cdef int sync_sealed(OpenFiles* files, uint64_t group, const FileCalls* calls) noexcept nogil
cdef void drop_sealed(OpenFiles* files, uint64_t group, uint64_t number, const FileCalls* calls) noexcept nogil
cdef int run_remove(Job* job, const FileCalls* calls) noexcept nogil
