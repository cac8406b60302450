# cython: language_level=3
from storage._disk cimport Job
from storage._fs cimport FileCalls

cdef int run_seal(Job* job, const FileCalls* calls) noexcept nogil
cdef int run_end(Job* job, const FileCalls* calls) noexcept nogil
cdef int run_compact(Job* job, const FileCalls* calls) noexcept nogil
