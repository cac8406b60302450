# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A purge by filter, sequence or number to keep, in slices whose length the caller chooses.

What comes after the job was made is not touched. A slice ends after so many removals or after a
search through a million sequences, whichever is first. Lowered limits are carried out in slices
too. And the end of a store whose stream is gone.
"""

from libc.stdint cimport int64_t, uint32_t

from storage._headers cimport ttl_of
from storage._memory cimport MemoryHome
from storage._record cimport Record
from storage._spans cimport HAS_TTL

cdef enum:
    FOUND_AT_ONCE = 256
    FEW = 16                # are removed as fast as the indexes are made anew


cdef PurgeJob purge_job(StreamStore store, SubjectFilter wanted, uint64_t seq, uint64_t keep):
    """Remove what matches below `seq` (0: any) except the last `keep` that match."""
    cdef PurgeJob job = PurgeJob()
    job.store = store
    job.wanted = wanted
    job.last = store.last_seq if seq == 0 else min(store.last_seq, seq - 1)
    job.newest = store.last_seq
    job.at = store.first_seq
    job.keep = keep
    job.find_most()
    if seq == 1 or store.messages == 0 or job.most == 0:
        job.done = True
    elif wanted.filter_count == 0 and seq == 0 and keep == 0:
        job.purged = store.messages
        store._purge_all()
        job.done = True
    elif wanted.filter_count == 0 and seq == 0 and keep == 1 and job.most > FEW and purge_but_newest(store):
        job.purged = job.most
        job.done = True
    return job


cdef int forget_all(StreamStore store) except -1:
    """Nothing is in the indexes; what the home has is still there."""
    if store.events is not None:
        store.events.purged(store.messages, store.bytes)
    store.subjects.clear()
    store.spans.remove_all()
    if store.wheel is not None:
        store.wheel.clear()
    store.messages = store.bytes = 0
    store.last_subject = 0
    store.aged_seq = 0
    return 0


cdef bint purge_but_newest(StreamStore store) except -1:
    """At once, unless the last sequence has no message, or one of which not all can be read."""
    cdef Record record
    cdef int64_t ttl_ns = 0
    if store.read(store.last_seq, &record) == 0:
        return False
    if store.spans.slot(store.last_seq) & HAS_TTL:
        ttl_ns = ttl_of(record.hdr, record.hdr_len) if record.hdr_len else 0
        if ttl_ns == 0:
            return False    # it did not come with the message
    forget_all(store)
    store._index(&record, ttl_ns)
    store.home.drop_below(store.last_seq)
    return True


cdef class PurgeJob:
    cdef int find_most(self) except -1:
        """How many there are to remove: fewer, when others of them went for another reason."""
        cdef uint64_t matching
        self.gone = self.store.last_seq - self.store.messages
        self.most = <uint64_t>-1
        if self.keep:
            matching = self.store.pending_from(self.wanted, 0)
            matching -= self.store.pending_from(self.wanted, self.newest + 1)
            self.most = self.purged + (matching - self.keep if matching > self.keep else 0)
        return 0

    def step(self, uint64_t messages_max):
        """Remove up to `messages_max` more; whether all is done."""
        cdef uint64_t[FOUND_AT_ONCE] found
        cdef uint64_t left = messages_max, resume = 0
        cdef uint32_t most
        cdef int count, i
        if self.gone != self.store.last_seq - self.store.messages:
            self.find_most()
        while left and not self.done:
            most = <uint32_t>min(left, self.most - self.purged, <uint64_t>FOUND_AT_ONCE)
            if most == 0 or self.at > self.last:
                self.done = True
                break
            count = self.store.next_seqs(self.wanted, self.at, self.last, found, most, &resume)
            self.at = resume
            for i in range(count):
                self.store.remove(found[i], False)
            self.purged += count
            self.gone += count
            left -= count
            if count < <int>most and self.at <= self.last:
                # The search was cut short: that was a slice's work.
                return False
        return self.done


cdef bint enforce_limits(StreamStore store, uint64_t most) except -1:
    """Until it is over each append carries out a part as well, beside what it adds."""
    cdef uint64_t left = most, count
    while store.messages and store._over_limits():
        if left == 0:
            return False
        store.remove(store.first_seq, False)
        left -= 1
    while store.subject_messages_max and store.enforced_subject < store.subjects.subject_top:
        count = store.subjects.subjects[store.enforced_subject].count
        if count > store.subject_messages_max:
            if left == 0:
                return False
            store.trim_subject(store.enforced_subject, store.subject_messages_max, left)
            left -= min(left, count - store.subject_messages_max)
        else:
            store.enforced_subject += 1
    store.trimmed_at_once = <uint64_t>-1
    return True


def let_go(StreamStore store):
    """The stream is gone: give its memory back now, not when the collector meets what was around it."""
    store.events = None
    store.home = MemoryHome()
    store._purge_all()
