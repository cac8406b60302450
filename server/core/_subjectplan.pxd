# cython: language_level=3
from libc.stdint cimport uint32_t


cdef enum StepKind:
    PLAIN = 0           # a text
    TOKEN = 1           # a token of the source
    PARTITION = 2
    REST = 3            # what the source's `>` stands for


cdef struct Step:
    StepKind kind
    uint32_t at         # PLAIN: where its text begins; TOKEN: which one; PARTITION: its first in `keys`
    uint32_t count      # PLAIN: bytes of the text; PARTITION: how many of `keys`, 0: the whole subject
    uint32_t partitions


cdef class SubjectPlan:
    cdef readonly object transform
    cdef bytes source
    cdef bytes texts            # of all plain steps
    cdef Step* steps
    cdef size_t step_count
    cdef uint32_t* keys         # positions of tokens that make partition keys
    cdef size_t* starts         # of the subject's tokens, as many as the source has
    cdef size_t* ends
    cdef bint in_python         # it has a function that Python carries out
    cdef bint changes           # the same subject may be mapped to another one next time
    cdef dict found             # subject -> what Python made of it

    # The subject that was made last; good until the next `apply`.
    cdef char* text
    cdef size_t text_len
    cdef size_t room

    # 1: `text` is what becomes of the subject. 0: it does not match, or is not a literal one.
    cdef bint apply(self, const char* subject, size_t length) except -1
    cdef int prepare(self, pieces, uint32_t tokens, bint is_open_ended) except -1
    cdef bint covers(self, const char* subject, size_t length) noexcept
    cdef bint ask_python(self, const char* subject, size_t length) except -1
    cdef int put(self, const char* part, size_t length) except -1
    cdef int put_partition(self, const Step* step, const char* subject, size_t length) except -1
