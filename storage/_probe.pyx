# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Pieces of the store's logic that only C callers see, as Python objects: for tests only."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from storage._spans cimport HAS_TTL


cdef class IndexProbe:
    """A subject index whose subjects are put in and taken out by hand."""

    def __init__(self):
        self.index = SubjectIndex()

    def add(self, bytes text):
        """The number of a subject that was not there."""
        cdef uint32_t number = self.index.intern(text, <uint16_t>len(text))
        self.index.subjects[number].count = 1
        return number

    def find(self, bytes text):
        return self.index.find(text, <uint16_t>len(text))

    def drop(self, bytes text):
        self.index.drop(self.index.find(text, <uint16_t>len(text)))

    def clear(self):
        self.index.clear()

    def text(self, uint32_t number):
        return self.index.text_of(number)[: self.index.subjects[number].text_len]

    def filter(self, filters):
        return SubjectFilter(self.index, filters)

    def matching(self, SubjectFilter wanted):
        """The texts that a filter, brought level, has marked."""
        cdef uint32_t number
        wanted.sync()
        return {
            self.text(number)
            for number in range(1, self.index.subject_top)
            if self.index.subjects[number].count and wanted.has(number)
        }

    def matches_text(self, SubjectFilter wanted, bytes text):
        return wanted.matches_text(text, <uint32_t>len(text))

    @property
    def subject_count(self):
        return self.index.subject_count

    @property
    def memory_bytes(self):
        return self.index.memory_bytes()


cdef class WheelProbe:
    """A wheel of expiries over sequences whose messages can be removed."""

    def __init__(self):
        self.wheel = ExpiryWheel()
        self.spans = SpanIndex()

    def add(self, uint64_t seq, int64_t at_ns):
        """Sequences rise."""
        self.spans.append(seq, 1 | HAS_TTL, 0, 1)
        self.wheel.add(seq, at_ns)

    def remove(self, uint64_t seq):
        """The message goes before its time."""
        self.spans.remove(seq, 1)
        self.wheel.note_stale(self.spans)

    def take_due(self, int64_t now_ns, uint32_t limit):
        cdef uint64_t* found = <uint64_t*>malloc(limit * sizeof(uint64_t))
        cdef uint32_t count, i
        if found == NULL:
            raise MemoryError
        count = self.wheel.take_due(now_ns, found, limit)
        due = [found[i] for i in range(count)]
        free(found)
        return due

    def keep_live(self, uint64_t last_seq):
        self.wheel.keep_live(self.spans, last_seq)

    @property
    def next_due_ns(self):
        return self.wheel.next_due()

    @property
    def entry_count(self):
        return self.wheel.count


cdef class EventsProbe(StoreEvents):
    """Writes down what a store tells of removals."""

    def __init__(self):
        self.seen = []

    cdef int removed(
        self, uint64_t seq, const char* subject, uint16_t subject_len, uint64_t size
    ) except -1:
        self.seen.append((seq, subject[:subject_len], size))
        return 0

    cdef int purged(self, uint64_t messages, uint64_t size) except -1:
        self.seen.append(("purged", messages, size))
        return 0
