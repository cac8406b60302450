# cython: language_level=3
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uintptr_t


cdef struct Record:
    uint64_t seq
    int64_t ts_ns
    uint64_t skip_count     # 0: a message; n: this stands for the n reserved sequences from seq on
    const char* subject
    const char* hdr
    const char* msg
    uint32_t hdr_len        # the whole header block with its first and last line; 0: none
    uint32_t msg_len
    uint16_t subject_len


# Called for each record in order; 0: go on, 1: stop. The record is a view as from `read`.
ctypedef int (*RecordVisit)(void* context, const Record* record) except -1


cdef extern from *:
    void __builtin_prefetch(const void* address) nogil


cdef inline void fetch_ahead(const void* start, size_t size) noexcept nogil:
    """The memory is on its way to the caches while other work is done; the address may be any."""
    cdef uintptr_t line = <uintptr_t>start & ~<uintptr_t>63
    while line < <uintptr_t>start + size:
        __builtin_prefetch(<const void*>line)
        line += 64


cdef tuple as_tuple(const Record* record)
cdef int collect(void* context, const Record* record) except -1


cdef class RecordHome:
    cdef readonly uint64_t last_seq
    cdef int append(self, const Record* record) except -1
    cdef int skip(self, uint64_t first, uint64_t count) except -1
    cdef int read(self, uint64_t seq, Record* out) except -1
    cdef int read_next(self, uint64_t seq, Record* out) except -1
    cdef int forget(self, uint64_t seq, bint erase) except -1
    cdef int drop_below(self, uint64_t seq) except -1
    cdef int cut_above(self, uint64_t seq) except -1
    cdef int visit(self, uint64_t first, RecordVisit step, void* context) except -1
    cdef int begin_whole(self) except -1
    cdef int end_whole(self) except -1
    cdef int64_t latest_time(self, uint64_t seq) except? -1
    cdef uint64_t seek_time(self, int64_t ts_ns) except? 0
    cdef uint64_t counted_size(self, const Record* record) noexcept nogil
    cdef uint64_t counted_at(self, uint64_t seq) except? 0
    cdef object pin(self, const Record* view)
    # An append is likely to come soon: ask for what it will touch, step by step (`StoreLedger.foresee`).
    cdef void foresee(self, int step) noexcept nogil


# What a store's logic keeps about its records; the home calls it while it replays the log.
cdef class RecordIndexer:
    cdef int index(self, const Record* record) except -1
    cdef int unindex(self, const Record* record) except -1
    cdef int reset(self) except -1
