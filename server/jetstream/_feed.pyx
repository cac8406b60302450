# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A stream as its consumers see it: told of what becomes durable and what goes.

Contract. Each consumer hears of what its filters let through, once and in order, and of nothing
before it is durable. An append costs what it concerns: the consumers are found in a trie of their
filters. A message of a stream that keeps by interest goes in the turn in which nobody wants it.
"""
cimport cython
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from server.core._account cimport Account
from server.core._sublist cimport MatchResult, Sublist
from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._hub cimport ConsumerHub
from server.jetstream._ingest cimport StreamSink
from server.jetstream._kinds cimport KEEP_BY_INTEREST, KEEP_BY_LIMITS, KEEP_UNTIL_ACKED
from server.jetstream._sweeps cimport UnwantedSweep
from storage._index cimport SUBJECT_ID_MASK
from storage._store cimport StoreEvents, StreamStore

cdef dict RETENTIONS = {
    "limits": KEEP_BY_LIMITS, "interest": KEEP_BY_INTEREST, "workqueue": KEEP_UNTIL_ACKED,
}


@cython.no_gc_clear
cdef class StreamFeed(StoreEvents):
    def __init__(
        self, ConsumerHub hub not None, Account account not None, StreamStore store not None,
        str name, str retention, uint64_t durable_seq,
    ):
        self.hub = hub
        self.account = account
        self.store = store
        self.name = name.encode()
        self.retention = RETENTIONS[retention]
        self.durable_seq = durable_seq
        self.interest = Sublist(cache=True, seed=hub.broker.random)
        self.cores = {}

    def attach(self, StreamSink sink):
        """What stores the stream's messages asks here whether somebody wants them."""
        self.sink = sink
        if sink is not None:
            sink.interest = self.interest

    def set_retention(self, str retention):
        self.retention = RETENTIONS[retention]

    def add(self, ConsumerCore core not None):
        if not self.cores:
            self.store.set_events(self)
        self.cores[core] = None
        self.filtered += bool(core.filters)

    def drop(self, ConsumerCore core not None):
        if core in self.cores:
            del self.cores[core]
            self.filtered -= bool(core.filters)
        if not self.cores:
            self.store.set_events(None)

    def changed_filters(self, bint had, bint has):
        """One of them has filters now, or has none any more."""
        self.filtered += has - had

    # What happens in the stream

    def appended(self, uint64_t first, uint64_t last):
        """These became durable."""
        cdef uint64_t seq, count = 0, lowest = 0
        cdef uint32_t slot, number, i
        cdef MatchResult* result
        cdef ConsumerCore core
        if last <= self.durable_seq:
            return
        first = max(first, self.durable_seq + 1)
        self.durable_seq = last
        if not self.cores:
            return
        for seq in range(first, last + 1):
            slot = self.store.spans.slot(seq)
            if slot == 0:
                continue
            if self.filtered == 0:
                count += 1
                if lowest == 0:
                    lowest = seq
                continue
            number = slot & SUBJECT_ID_MASK
            result = self.interest.match(
                self.store.subjects.text_of(number), self.store.subjects.subjects[number].text_len
            )
            for i in range(result.plain_count):
                (<ConsumerCore>result.plain[i].sink).appended(seq, 1)
        if count:
            for core in self.cores:
                self.count_for(core, lowest, last, count)

    cdef int count_for(
        self, ConsumerCore core, uint64_t lowest, uint64_t last, uint64_t count
    ) except -1:
        """Some consumers begin in the middle of what was appended, or beyond it."""
        cdef uint64_t seq
        if core.next_seq <= lowest:
            return core.appended(lowest, count)
        for seq in range(core.next_seq, last + 1):
            if self.store.spans.slot(seq):
                core.appended(seq, 1)
        return 0

    cdef int removed(
        self, uint64_t seq, const char* subject, uint16_t subject_len, uint64_t size
    ) except -1:
        cdef MatchResult* result
        cdef ConsumerCore core
        cdef uint32_t i
        if seq > self.durable_seq or self.is_purging:
            return 0
        if self.filtered == 0:
            for core in self.cores:
                core.gone(seq)
            return 0
        result = self.interest.match(subject, subject_len)
        for i in range(result.plain_count):
            (<ConsumerCore>result.plain[i].sink).gone(seq)
        return 0

    cdef int purged(self, uint64_t messages, uint64_t size) except -1:
        """All went; `Stream.purge` tells each consumer where it goes on."""
        cdef ConsumerCore core
        for core in self.cores:
            core.num_pending = 0
            core.drop_skipped()
        return 0

    # What consumers are done with

    cdef int settled(self, uint64_t seq) except -1:
        """A consumer is done with this one: nobody may want it any more."""
        if self.retention == KEEP_BY_LIMITS or self.is_wanted(seq, None):
            return 0
        return self.remove(seq)

    cdef bint is_wanted(self, uint64_t seq, ConsumerCore but) except -1:
        cdef uint32_t slot = self.store.spans.slot(seq), number, i
        cdef MatchResult* result
        cdef ConsumerCore core
        if slot == 0:
            return True
        number = slot & SUBJECT_ID_MASK
        result = self.interest.match(
            self.store.subjects.text_of(number), self.store.subjects.subjects[number].text_len
        )
        for i in range(result.plain_count):
            core = <ConsumerCore>result.plain[i].sink
            if core is not but and core.needs_ack(seq):
                return True
        return False

    cdef int remove(self, uint64_t seq) except -1:
        self.store.remove(seq, False)
        if self.sink is not None:
            self.sink.removed()
        return 0

    def remove_unwanted(self, uint64_t first, uint64_t last):
        """Messages in this range that no consumer waits for go, the first of them now."""
        last = min(last, self.durable_seq)
        if self.unwanted is not None and not self.unwanted.is_over:
            first = min(first, self.unwanted.at)
            self.unwanted.last = max(last, self.unwanted.last)
            self.unwanted.at = first
            return
        self.unwanted = UnwantedSweep(self, first, last)
        self.unwanted.begin()

    @property
    def is_sweeping(self):
        """Whether messages may be there that nobody waits for."""
        return self.unwanted is not None and not self.unwanted.is_over

    def close(self):
        self.is_closed = True
