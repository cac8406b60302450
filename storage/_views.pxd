# cython: language_level=3


# Bytes that views point into; lives as long as a reader's pin or the arena refers to it.
cdef class Memory:
    cdef char* data
    cdef size_t capacity
    cdef size_t used


# Where what a read had to make (decrypt, decompress) stays until views end.
cdef class ViewArena:
    cdef list chunks
    cdef Memory newest
    cdef char* take(self, size_t size) except NULL
    cdef Memory holder_of(self, const char* at)
    cdef int end_views(self) except -1
    cdef int give_back(self, Memory chunk, size_t used) except -1
