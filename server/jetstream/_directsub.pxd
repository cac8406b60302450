# cython: language_level=3
from libc.stdint cimport uint64_t

from server.core._account cimport PySub
from server.core._sink cimport Msg
from server.jetstream._ingest cimport StreamSink
from storage._record cimport Record


# Hears direct gets of one stream; those that ask for a subject's last message are answered here.
cdef class DirectSub(PySub):
    cdef StreamSink source
    cdef uint64_t answered

    cdef bint answer_last(self, Msg* message) except -1
    cdef int answer(self, Msg* request, const Record* record) except -1
    cdef size_t head_bytes_max(self, const Record* record) noexcept
    cdef char* write_head(self, char* to, const Record* record) noexcept
    cdef int send(self, Msg* answer) except -1
