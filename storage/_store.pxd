# cython: language_level=3
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from storage._filter cimport SubjectFilter
from storage._ledger cimport (
    ACCEPTED, BYTES_LIMIT, MESSAGES_LIMIT, SUBJECT_MESSAGES_LIMIT, SUBJECT_TOO_LONG, Refusal, StoreEvents, StoreLedger)
from storage._record cimport Record


cdef class StreamStore(StoreLedger):
    cdef dict filters

    cdef uint64_t last_seq_of(self, const char* subject, uint16_t subject_len) noexcept nogil
    cdef uint64_t count_of(self, const char* subject, uint16_t subject_len) noexcept nogil

    # For consumers: make a filter of your own once, ask again with it. DESIGN.md, "For consumers".
    cdef SubjectFilter own_filter(self, object filters)
    cdef uint64_t next_seq(self, SubjectFilter wanted, uint64_t seq) except? 0
    cdef int next_seqs(self, SubjectFilter wanted, uint64_t seq, uint64_t last, uint64_t* found, uint32_t limit, uint64_t* resume) except -1
    cdef uint64_t pending_from(self, SubjectFilter wanted, uint64_t seq) except? 0
    cdef bint matches(self, SubjectFilter wanted, uint64_t seq) except -1
    cdef int read(self, uint64_t seq, Record* out) except -1
    # The same filter for whoever asks with these texts: for single questions.
    cdef SubjectFilter filter_of(self, object filters)

    cdef int _purge_all(self) except -1
    cdef object _message(self, uint64_t seq)
    cdef object _text(self, uint32_t number)
