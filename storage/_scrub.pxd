# cython: language_level=3
from storage._disk cimport Job
from storage._fs cimport FileCalls

cdef int scrub_records(Job* job, const FileCalls* calls) noexcept nogil
cdef int blank_tail(Job* job, const FileCalls* calls) noexcept nogil
