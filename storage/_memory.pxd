# cython: language_level=3
from libc.stdint cimport int64_t, uint32_t, uint64_t

from storage._record cimport RecordHome


cdef class Chunk:
    cdef char* memory
    cdef size_t size
    cdef size_t used
    cdef size_t live_bytes
    cdef size_t emptied             # records before it were copied out or dead
    cdef bint listed                # waits to be emptied

cdef struct Page:
    uint64_t number                 # sequence // PAGE_SLOTS
    int64_t latest_ns               # no message of the page is later
    uint32_t live
    uint32_t capacity
    void** records                  # NULL: nothing lives there


cdef class MemoryHome(RecordHome):
    cdef Page* pages
    cdef size_t head
    cdef size_t tail
    cdef size_t capacity
    cdef dict chunks                # by the address of their memory
    cdef Chunk active
    cdef dict sparse                # of these, the ones that are mostly dead
    cdef uint64_t held_bytes
    cdef readonly uint64_t live_bytes
    cdef uint64_t first_seq         # all below is gone

    cdef size_t page_from(self, uint64_t number) noexcept nogil
    cdef void** place_of(self, uint64_t seq) noexcept nogil
    cdef Page* _page_for(self, uint64_t seq) except NULL
    cdef void* _room(self, size_t length) except NULL
    cdef int _release(self, void* record) except -1
    cdef int _retire(self, Chunk chunk) except -1
    cdef int _evacuate(self) except -1
    cdef int _drop_page(self, size_t at) except -1
    cdef int _forget_in(self, Page* page, uint32_t low, uint32_t high) except -1
