# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Memory for what a read makes: the plaintext of encrypted records.

Contract: what `take` gave stays until `end_views`, or longer for who holds the `Memory` that
`holder_of` names. One read after the other may give back what it alone used (`give_back`).
"""
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, malloc

cdef enum:
    CHUNK_SIZE = 256 << 10


cdef class Memory:
    """Bytes that views point into."""

    def __cinit__(self, size_t size):
        self.capacity = size
        self.data = <char*>malloc(size or 1)
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, <Py_ssize_t>self.capacity, 0, flags)


cdef class ViewArena:
    """See the module."""

    def __cinit__(self):
        self.chunks = []

    cdef char* take(self, size_t size) except NULL:
        cdef Memory chunk = self.newest
        cdef char* at
        if chunk is None or chunk.capacity - chunk.used < size:
            chunk = Memory(max(size, <size_t>CHUNK_SIZE))
            self.chunks.append(chunk)
            self.newest = chunk
        at = chunk.data + chunk.used
        chunk.used += size
        return at

    cdef Memory holder_of(self, const char* at):
        """The chunk that `at` points into; None: none of these."""
        cdef Memory chunk
        for chunk in reversed(self.chunks):
            if chunk.data <= at < chunk.data + chunk.capacity:
                return chunk
        return None

    cdef int give_back(self, Memory chunk, size_t used) except -1:
        """Return to when `chunk` was the newest and this much of it was used."""
        while self.chunks and self.chunks[len(self.chunks) - 1] is not chunk:
            self.chunks.pop()
        self.newest = chunk
        if chunk is not None:
            chunk.used = used
        return 0

    cdef int end_views(self) except -1:
        if self.chunks:
            self.chunks.clear()
            self.newest = None
        return 0
