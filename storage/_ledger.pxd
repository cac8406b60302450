# cython: language_level=3
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from storage._expiry cimport ExpiryWheel
from storage._index cimport SubjectIndex
from storage._record cimport Record, RecordHome
from storage._spans cimport SpanIndex


cdef enum Refusal:
    ACCEPTED = 0
    MESSAGES_LIMIT = 1
    BYTES_LIMIT = 2
    SUBJECT_MESSAGES_LIMIT = 3
    SUBJECT_TOO_LONG = 4


cdef class StoreEvents:
    """Who wants to hear of removals overrides these; called before the message is gone."""
    cdef int removed(
        self, uint64_t seq, const char* subject, uint16_t subject_len, uint64_t size
    ) except -1
    cdef int purged(self, uint64_t messages, uint64_t size) except -1


# The part of a StreamStore that knows what lives.
cdef class StoreLedger:
    cdef readonly RecordHome home
    cdef SubjectIndex subjects
    cdef SpanIndex spans
    cdef ExpiryWheel wheel
    cdef StoreEvents events
    cdef readonly object limits

    cdef readonly uint64_t messages
    cdef readonly uint64_t bytes
    cdef readonly uint64_t first_seq
    cdef readonly uint64_t last_seq
    cdef readonly int64_t last_ts_ns

    cdef uint64_t messages_max      # these four: 0 is no limit
    cdef uint64_t bytes_max
    cdef uint64_t subject_messages_max
    cdef int64_t age_max_ns
    cdef int64_t marker_ttl_ns
    cdef bint discard_new
    cdef bint discard_new_per_subject
    cdef bint allow_ttl
    cdef uint64_t aged_seq          # what lives below it never grows too old
    cdef uint32_t enforced_subject  # while lowered per-subject limits are carried out
    cdef uint64_t trimmed_at_once   # by one append; few while `enforce` has to carry out lowered limits
    cdef uint32_t last_subject      # number that the last message had

    # For the ingest of a stream: no Python object is made.
    # `record` needs subject, hdr, msg and ts_ns; its seq is set to the one that was given out.
    cdef Refusal check(self, const Record* record) noexcept
    cdef Refusal store_record(self, Record* record, int64_t ttl_ns) except *
    cdef int store_records(self, Record* records, const int64_t* ttls_ns, size_t count, Refusal* refusals) except -1
    # Only the last `messages_max` stay of the subject with that number, if no more than `most` have to go.
    cdef int trim_subject(self, uint32_t number, uint64_t messages_max, uint64_t most) except -1

    # A message is likely to come soon: each step asks for memory that the one before has found.
    cdef void foresee(self, int step) noexcept nogil

    cdef int remove(self, uint64_t seq, bint erase) except -1

    # For the file store's recovery.
    cdef int index(self, const Record* record) except -1
    cdef int unindex(self, const Record* record) except -1

    cdef int _index(self, const Record* record, int64_t ttl_ns) except -1
    cdef uint32_t _subject_of(self, const Record* record) except 0
    cdef int _unlist(self, uint64_t seq, uint64_t size) except -1
    cdef int _forget_subject(self, uint32_t number, uint64_t seq) except -1
    cdef int _take_off(self, uint64_t seq, uint32_t slot, uint64_t size) except -1
    cdef int _find_first(self) except -1
    cdef int _drop_first(self) except -1
    cdef int _trim(self) except -1
    cdef bint _over_limits(self) noexcept
    cdef uint64_t _counted_quietly(self, uint64_t seq) noexcept
    cdef int _reset(self, uint64_t last_seq) except -1
