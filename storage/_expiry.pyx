# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""When messages with a time to live of their own end: a wheel of 1,024 slots of one second.

An entry for a message that was removed meanwhile stays until its slot is looked at; the store skips
it. When more than half of all entries are such, they are swept out, so the wheel holds at most twice
what lives. Entries due after more than one turn of the wheel wait in their slot.
"""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free, realloc

from storage._spans cimport HAS_TTL

cdef enum:
    SLOTS = 1024
    STALE_KEPT = 1024

cdef int64_t SECOND_NS = 1_000_000_000


cdef class ExpiryWheel:
    def __cinit__(self):
        self.slots = <WheelSlot*>calloc(SLOTS, sizeof(WheelSlot))
        if self.slots == NULL:
            raise MemoryError
        self.next_ns = INT64_MAX
        self.swept_second = INT64_MAX

    def __dealloc__(self):
        self.clear()
        free(self.slots)

    cdef void clear(self) noexcept:
        cdef int i
        for i in range(SLOTS):
            free(self.slots[i].entries)
            self.slots[i].entries = NULL
            self.slots[i].count = self.slots[i].capacity = 0
        self.count = self.stale = 0
        self.next_ns = self.swept_second = INT64_MAX

    cdef int add(self, uint64_t seq, int64_t at_ns) except -1:
        cdef WheelSlot* slot = &self.slots[(at_ns // SECOND_NS) & (SLOTS - 1)]
        cdef uint32_t capacity
        cdef Expiry* entries
        if slot.count == slot.capacity:
            capacity = 4 if slot.capacity == 0 else slot.capacity * 2
            entries = <Expiry*>realloc(slot.entries, capacity * sizeof(Expiry))
            if entries == NULL:
                raise MemoryError
            slot.entries = entries
            slot.capacity = capacity
        if slot.count == 0:
            slot.lowest_ns = INT64_MAX
        slot.entries[slot.count].at_ns = at_ns
        slot.entries[slot.count].seq = seq
        slot.count += 1
        slot.lowest_ns = min(slot.lowest_ns, at_ns)
        self.count += 1
        self.next_ns = min(self.next_ns, at_ns)
        self.swept_second = min(self.swept_second, at_ns // SECOND_NS)
        return 0

    cdef uint32_t take_due(self, int64_t now_ns, uint64_t* seqs, uint32_t limit) noexcept:
        """Take out up to `limit` sequences that end at or before `now_ns`; fewer: no more is due."""
        cdef int64_t second, last_second = now_ns // SECOND_NS, first_second
        cdef uint32_t taken = 0
        if self.count == 0 or self.next_ns > now_ns:
            return 0
        first_second = max(self.swept_second, last_second - SLOTS + 1)
        second = first_second
        while second <= last_second:
            taken += self._take_from(
                &self.slots[second & (SLOTS - 1)], now_ns, seqs + taken, limit - taken
            )
            if taken == limit:
                self.swept_second = second
                return taken
            second += 1
        self.swept_second = last_second
        self._find_next()
        return taken

    cdef uint32_t _take_from(
        self, WheelSlot* slot, int64_t now_ns, uint64_t* seqs, uint32_t limit
    ) noexcept:
        cdef uint32_t i = 0, taken = 0
        cdef int64_t lowest = INT64_MAX
        if slot.count == 0 or slot.lowest_ns > now_ns:
            return 0
        while i < slot.count and taken < limit:
            if slot.entries[i].at_ns <= now_ns:
                seqs[taken] = slot.entries[i].seq
                taken += 1
                slot.count -= 1
                slot.entries[i] = slot.entries[slot.count]
            else:
                lowest = min(lowest, slot.entries[i].at_ns)
                i += 1
        self.count -= taken
        if taken < limit:
            slot.lowest_ns = lowest
        if slot.count == 0:
            free(slot.entries)
            slot.entries = NULL
            slot.capacity = 0
        return taken

    cdef void _find_next(self) noexcept:
        cdef int i
        self.next_ns = INT64_MAX
        for i in range(SLOTS):
            if self.slots[i].count:
                self.next_ns = min(self.next_ns, self.slots[i].lowest_ns)

    cdef int64_t next_due(self) noexcept:
        """A time that is not after the earliest entry; INT64_MAX: there is none."""
        return self.next_ns if self.count else INT64_MAX

    cdef int note_stale(self, SpanIndex spans) except -1:
        """A message with an entry was removed."""
        self.stale += 1
        if self.stale > STALE_KEPT and self.stale > self.count // 2:
            self.keep_live(spans, <uint64_t>-1)
        return 0

    cdef int keep_live(self, SpanIndex spans, uint64_t last_seq) except -1:
        """Drop entries whose message is gone or lies above `last_seq`."""
        cdef int s
        cdef uint32_t i
        cdef WheelSlot* slot
        cdef uint64_t seq
        self.count = 0
        self.stale = 0
        for s in range(SLOTS):
            slot = &self.slots[s]
            i = 0
            while i < slot.count:
                seq = slot.entries[i].seq
                if seq > last_seq or not spans.slot(seq) & HAS_TTL:
                    slot.count -= 1
                    slot.entries[i] = slot.entries[slot.count]
                else:
                    i += 1
            self.count += slot.count
        self._find_next()
        return 0
