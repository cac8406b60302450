# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The part of a StreamStore that knows what lives: it takes messages in, carries out limits, takes messages away.

Contract: `_store`. Everything here is kept level record by record and makes no Python object on the way
of a message.

Order of a removal: the home forgets the record, then the subject's entry, the span and the counts.
Removing the first message only tells the home where the stream now begins.
"""
from libc.string cimport memcmp

from storage._headers cimport is_rollup, ttl_of
from storage._index cimport FIRST_IS_BOUND, SUBJECT_ID_MASK, SUBJECT_LEN_MAX, Subject
from storage._record cimport fetch_ahead
from storage._spans cimport HAS_TTL

from storage.ports import Discard, StoreLimits

cdef enum:
    LOWERED_AT_ONCE = 256
    LEDGER_BYTES = 208       # of the objects, as far as an append touches them
    HOME_BYTES = 472

cdef uint64_t ALL = <uint64_t>-1


cdef class StoreEvents:
    cdef int removed(
        self, uint64_t seq, const char* subject, uint16_t subject_len, uint64_t size
    ) except -1:
        """One message goes."""
        return 0

    cdef int purged(self, uint64_t messages, uint64_t size) except -1:
        """All messages go at once."""
        return 0


cdef class StoreLedger:
    """See the module."""

    def __init__(self, RecordHome home not None, limits=None, uint64_t first_seq=0):
        self.home = home
        self.subjects = SubjectIndex()
        self.spans = SpanIndex()
        self.set_limits(StoreLimits() if limits is None else limits)
        self.trimmed_at_once = ALL
        self._reset(first_seq - 1 if first_seq > 1 else 0)

    cdef int _reset(self, uint64_t last_seq) except -1:
        """Nothing is there, `last_seq` was the last one."""
        # The same objects as before: consumers keep filters over them.
        self.subjects.clear()
        self.spans.remove_all()
        self.wheel = None
        self.messages = self.bytes = 0
        self.last_seq = last_seq
        self.first_seq = last_seq + 1 if last_seq else 0
        self.last_ts_ns = 0
        self.last_subject = 0
        self.aged_seq = 0
        return 0

    def set_limits(self, limits not None):
        """Take new limits; `enforce` carries them out, and until then each append a part of it."""
        self.limits = limits
        self.messages_max = max(limits.messages_max, 0)
        self.bytes_max = max(limits.bytes_max, 0)
        self.subject_messages_max = max(limits.messages_per_subject_max, 0)
        self.age_max_ns = max(limits.age_max_ns, 0)
        self.marker_ttl_ns = limits.marker_ttl_ns
        self.discard_new = limits.discard is Discard.NEW
        self.discard_new_per_subject = limits.discard_new_per_subject
        self.allow_ttl = limits.allow_ttl or limits.marker_ttl_ns > 0
        self.aged_seq = 0
        self.enforced_subject = 1
        self.trimmed_at_once = LOWERED_AT_ONCE

    def set_events(self, StoreEvents events):
        self.events = events

    @property
    def subject_count(self):
        return self.subjects.subject_count

    # Storing

    cdef Refusal check(self, const Record* record) noexcept:
        """Whether limits that discard new messages would refuse this one now."""
        cdef bint replaces = False
        cdef uint32_t number
        cdef uint64_t size, first
        if record.subject_len == 0 or record.subject_len > SUBJECT_LEN_MAX:
            return SUBJECT_TOO_LONG
        if not self.discard_new:
            return ACCEPTED
        number = 0
        if self.subject_messages_max:
            number = self.subjects.find(record.subject, record.subject_len)
            if number and self.subjects.subjects[number].count >= self.subject_messages_max:
                if self.discard_new_per_subject and not (
                    record.hdr_len and is_rollup(record.hdr, record.hdr_len)
                ):
                    return SUBJECT_MESSAGES_LIMIT
                replaces = True
        if self.messages_max and self.messages >= self.messages_max and not replaces:
            return MESSAGES_LIMIT
        if self.bytes_max:
            size = self.home.counted_size(record)
            if self.bytes + size > self.bytes_max:
                if not replaces:
                    return BYTES_LIMIT
                first = self.spans.first_of(self.subjects, number, 0)
                if self._counted_quietly(first) < size:
                    return BYTES_LIMIT
        return ACCEPTED

    cdef uint64_t _counted_quietly(self, uint64_t seq) noexcept:
        """Called where no error can be reported: an unreadable message counts 0."""
        return self.home.counted_at(seq)

    cdef Refusal store_record(self, Record* record, int64_t ttl_ns) except *:
        """Store under the next sequence and carry out the limits, or say why not."""
        cdef Refusal refusal = self.check(record)
        if refusal != ACCEPTED:
            return refusal
        record.seq = self.last_seq + 1
        record.skip_count = 0
        self.home.append(record)
        self._index(record, ttl_ns)
        if self.subject_messages_max:
            self.trim_subject(self.last_subject, self.subject_messages_max, self.trimmed_at_once)
        if self._over_limits():
            self._trim()
        return ACCEPTED

    cdef void foresee(self, int step) noexcept nogil:
        if step == 0:
            fetch_ahead(<void*>self, LEDGER_BYTES)
        elif step == 1:
            fetch_ahead(<void*>self.home, HOME_BYTES)
            fetch_ahead(<void*>self.subjects, 64)
            fetch_ahead(<void*>self.spans, 64)
        else:
            self.home.foresee(step - 2)
            self.spans.foresee(step - 2)
            if step == 2:
                fetch_ahead(&self.subjects.subjects[self.last_subject], sizeof(Subject))

    cdef int store_records(
        self, Record* records, const int64_t* ttls_ns, size_t count, Refusal* refusals
    ) except -1:
        """A batch in order; `ttls_ns` may be NULL; `refusals` gets one answer each. Returns refused."""
        cdef size_t i
        cdef int refused = 0
        for i in range(count):
            refusals[i] = self.store_record(&records[i], 0 if ttls_ns == NULL else ttls_ns[i])
            if refusals[i] != ACCEPTED:
                refused += 1
        return refused

    cdef uint32_t _subject_of(self, const Record* record) except 0:
        """The number of the record's subject; streams often repeat the one before."""
        cdef uint32_t number = self.last_subject
        cdef Subject* entry
        if number:
            entry = &self.subjects.subjects[number]
            if entry.count and entry.text_len == record.subject_len and (
                memcmp(self.subjects.text_of(number), record.subject, record.subject_len) == 0
            ):
                return number
        number = self.subjects.find(record.subject, record.subject_len)
        if number == 0:
            number = self.subjects.intern(record.subject, record.subject_len)
        self.last_subject = number
        return number

    cdef int _index(self, const Record* record, int64_t ttl_ns) except -1:
        cdef uint32_t number = self._subject_of(record), slot
        cdef Subject* entry = &self.subjects.subjects[number]
        cdef uint64_t before = 0, size = self.home.counted_size(record)
        slot = number
        if ttl_ns and self.allow_ttl:
            slot |= HAS_TTL
            if ttl_ns > 0:
                if self.wheel is None:
                    self.wheel = ExpiryWheel()
                self.wheel.add(record.seq, record.ts_ns + ttl_ns)
        if entry.count:
            before = entry.last_seq
        else:
            entry.first_seq = record.seq
            entry.flags = 0
        entry.last_seq = record.seq
        entry.count += 1
        self.spans.append(record.seq, slot, before, size)
        if self.messages == 0:
            self.first_seq = record.seq
        self.messages += 1
        self.bytes += size
        self.last_seq = record.seq
        self.last_ts_ns = record.ts_ns
        return 0

    cdef int index(self, const Record* record) except -1:
        """A record or skip that the home already has and that comes after all known ones."""
        if record.skip_count:
            self.last_seq = record.seq + record.skip_count - 1
            if self.messages == 0:
                self.first_seq = self.last_seq + 1
            return 0
        return self._index(
            record, ttl_of(record.hdr, record.hdr_len) if self.allow_ttl and record.hdr_len else 0
        )

    cdef int unindex(self, const Record* record) except -1:
        """A record that the home has removed already; nothing happens when it is not known."""
        if self.spans.slot(record.seq):
            self._unlist(record.seq, self.home.counted_size(record))
        return 0

    # Limits

    cdef bint _over_limits(self) noexcept:
        return (self.messages_max and self.messages > self.messages_max) or (
            self.bytes_max and self.bytes > self.bytes_max
        )

    cdef int _trim(self) except -1:
        """Drop the oldest until the limits hold."""
        cdef uint64_t left = self.trimmed_at_once
        while left and self.messages and self._over_limits():
            self._drop_first()
            left -= 1
        self.home.drop_below(self.first_seq)
        return 0

    cdef int _drop_first(self) except -1:
        """`remove` of the first message, for one after the other; `drop_below` is the caller's."""
        cdef uint64_t seq = self.first_seq, size = self.home.counted_at(seq)
        cdef uint32_t slot = self.spans.slot(seq), number = slot & SUBJECT_ID_MASK
        if self.events is not None:
            self.events.removed(
                seq, self.subjects.text_of(number), self.subjects.subjects[number].text_len, size
            )
        self._take_off(seq, slot, size)
        self._find_first()
        return 0

    cdef int trim_subject(self, uint32_t number, uint64_t messages_max, uint64_t most) except -1:
        cdef uint64_t left = most
        while left and self.subjects.subjects[number].count > messages_max:
            self.remove(self.spans.first_of(self.subjects, number, 0), False)
            left -= 1
        return 0

    # Removing

    cdef int remove(self, uint64_t seq, bint erase) except -1:
        """1: the message is gone. 0: nothing lives at `seq`."""
        cdef uint32_t slot = self.spans.slot(seq)
        cdef uint64_t size
        cdef uint32_t number
        if slot == 0:
            return 0
        size = self.home.counted_at(seq)
        if self.events is not None:
            number = slot & SUBJECT_ID_MASK
            self.events.removed(
                seq, self.subjects.text_of(number), self.subjects.subjects[number].text_len, size
            )
        # Where the first message goes, `_unlist` tells the home where the stream now begins.
        if erase or seq != self.first_seq:
            self.home.forget(seq, erase)
        self._unlist(seq, size)
        return 1

    cdef int _unlist(self, uint64_t seq, uint64_t size) except -1:
        self._take_off(seq, self.spans.slot(seq), size)
        if seq == self.first_seq:
            self._find_first()
            self.home.drop_below(self.first_seq)
        return 0

    cdef int _take_off(self, uint64_t seq, uint32_t slot, uint64_t size) except -1:
        """Off the indexes and the counts."""
        self.subjects.note_removed(seq, slot & SUBJECT_ID_MASK)
        self._forget_subject(slot & SUBJECT_ID_MASK, seq)
        self.spans.remove(seq, size)
        self.messages -= 1
        self.bytes -= size
        if slot & HAS_TTL and self.wheel is not None:
            self.wheel.note_stale(self.spans)
        return 0

    cdef int _forget_subject(self, uint32_t number, uint64_t seq) except -1:
        """Take one message off the subject's entry; the span still shows it."""
        cdef Subject* entry = &self.subjects.subjects[number]
        if entry.count == 1:
            return self.subjects.drop(number)
        if seq == entry.last_seq:
            if entry.count == 2 and not entry.flags & FIRST_IS_BOUND:
                entry.last_seq = entry.first_seq
            else:
                entry.last_seq = self.spans.last_of(self.subjects, number, seq - 1)
        elif seq == entry.first_seq:
            entry.first_seq = seq + 1
            entry.flags |= FIRST_IS_BOUND
        entry.count -= 1
        if entry.count == 1:
            entry.first_seq = entry.last_seq
            entry.flags &= ~FIRST_IS_BOUND
        return 0

    cdef int _find_first(self) except -1:
        """The first message went: find the one that is first now."""
        self.first_seq = self.spans.next_live(self.first_seq + 1) if self.messages else 0
        if self.first_seq == 0:
            self.first_seq = self.last_seq + 1
            self.bytes = 0
        return 0
