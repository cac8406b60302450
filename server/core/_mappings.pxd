from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from server.core._sublist cimport Sublist


cdef class Mappings:
    cdef object random_below
    cdef Sublist sources
    cdef list held                   # the sources in their trie
    cdef list ways                   # of each mapping: its plans, and which hundredths each takes
    cdef readonly dict described

    # Where the last `apply` led; good until the next one. Empty: nowhere, the message is lost.
    cdef const char* text
    cdef size_t text_len

    # 1: the subject is mapped, to `text`. 0: no mapping is for it.
    cdef bint apply(self, const char* subject, size_t length, uint64_t* random) except -1
