# cython: language_level=3
from storage._disk cimport Job
from storage._fs cimport FileCalls

cdef int write_direct(Job* job, const FileCalls* calls) noexcept nogil
cdef int sync_paths(Job* job, const FileCalls* calls) noexcept nogil
