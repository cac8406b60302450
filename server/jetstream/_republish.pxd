# cython: language_level=3
from libc.stdint cimport int64_t, uint64_t

from server.core._subjectplan cimport SubjectPlan
from storage._record cimport Record


cdef class Republisher:
    cdef SubjectPlan plan           # its text is the copy's subject
    cdef bytes stream
    cdef readonly bint headers_only
    cdef int64_t time_ns            # of which `time` is the text: a turn's messages have one time
    cdef bytes time
    cdef char* block
    cdef size_t block_len, room

    # 1: `plan.text` and `block` are the copy's subject and headers, until the next one. 0: none.
    cdef bint prepare(self, const Record* record, uint64_t before) except -1
    cdef int put(self, const char* text, size_t length) except -1
    cdef int put_field(self, const char* name, size_t name_len, const char* text, size_t length) except -1
    cdef int put_count(self, const char* name, size_t name_len, uint64_t count) except -1
