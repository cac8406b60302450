# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where the message bytes of one stream live: the port between the store's logic and its bytes.

The logic (limits, subjects, time to live, what is deleted and why) is written once over
`RecordHome`; memory and blocks on disk are its two homes. DESIGN.md, "The seam", has the contract.
"""


cdef tuple as_tuple(const Record* record):
    return (record.seq, record.ts_ns, record.subject[:record.subject_len], record.hdr[:record.hdr_len],
            record.msg[:record.msg_len])


cdef int collect(void* context, const Record* record) except -1:
    """A `RecordVisit` over a list; a skip is `(seq, count)`."""
    (<list>context).append((record.seq, record.skip_count) if record.skip_count else as_tuple(record))
    return 0


cdef class RecordHome:
    """Abstract. `last_seq` is the highest sequence appended or skipped and not cut; 0 at first."""

    cdef int append(self, const Record* record) except -1:
        """Keep a copy of `record`; its sequence is above `last_seq`. Readable at once."""
        raise NotImplementedError

    cdef int skip(self, uint64_t first, uint64_t count) except -1:
        """Reserve `count` sequences from `first`, which is above `last_seq`."""
        raise NotImplementedError

    cdef int read(self, uint64_t seq, Record* out) except -1:
        """1: found, `out` is a view. 0: absent (skipped, forgotten, dropped, cut or damaged)."""
        raise NotImplementedError

    cdef int read_next(self, uint64_t seq, Record* out) except -1:
        """As `read`, of the lowest live sequence at or above `seq`."""
        raise NotImplementedError

    cdef int forget(self, uint64_t seq, bint erase) except -1:
        """Delete one record; with `erase` its bytes are overwritten. 0: it was absent already."""
        raise NotImplementedError

    cdef int drop_below(self, uint64_t seq) except -1:
        """All records below `seq` are gone. Never moves back; may be above `last_seq` + 1."""
        raise NotImplementedError

    cdef int cut_above(self, uint64_t seq) except -1:
        """Take back the tail: all records above `seq` are gone and `last_seq` becomes `seq`."""
        raise NotImplementedError

    cdef int visit(self, uint64_t first, RecordVisit step, void* context) except -1:
        """All live records and skips from `first` on, in order, to `step`. No mutating call in it."""
        raise NotImplementedError

    cdef int begin_whole(self) except -1:
        """What is written from now on lasts with `end_whole`: after a crash all of it is there, or nothing."""
        return 0

    cdef int end_whole(self) except -1:
        return 0

    cdef int64_t latest_time(self, uint64_t seq) except? -1:
        """Of a message that lives but cannot be read: no later than this was it stored."""
        return 0

    cdef uint64_t seek_time(self, int64_t ts_ns) except? 0:
        """The lowest live sequence whose time is at or after `ts_ns`; 0: none."""
        raise NotImplementedError

    cdef uint64_t counted_size(self, const Record* record) noexcept nogil:
        """What `max_bytes` counts for this record; differs between file and memory (9.018)."""
        return 0

    cdef uint64_t counted_at(self, uint64_t seq) except? 0:
        """`counted_size` of the live record at `seq`; 0: absent. A home may know it without reading."""
        cdef Record record
        return self.counted_size(&record) if self.read(seq, &record) else 0

    cdef void foresee(self, int step) noexcept nogil:
        pass

    cdef object pin(self, const Record* view):
        """An object that owns the memory of `view`: the bytes stay mapped while it is referenced."""
        raise NotImplementedError


cdef class RecordIndexer:
    """Abstract: the logic's side of a recovery. None of these calls the home."""

    cdef int index(self, const Record* record) except -1:
        """This message, or skip, exists; sequences come in ascending order."""
        raise NotImplementedError

    cdef int unindex(self, const Record* record) except -1:
        """This message does not exist any more; it was told to `index` before."""
        raise NotImplementedError

    cdef int reset(self) except -1:
        """Forget everything; `index` of all there is follows."""
        raise NotImplementedError
