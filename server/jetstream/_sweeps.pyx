# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Work over all messages of a stream or all pending ones of a consumer, in slices.

Contract. The first slice is done by `begin`, so that what is short is over when it returns; what is
left follows by the hub's timers, SLICE_NS at a time, and everybody else's work goes on in between.
Whoever begins one says what is true from then on (floors, counts of what is left to deliver); a
sweep only clears away, and what it has not come to yet is neither delivered again nor counted
twice.
"""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._feed cimport StreamFeed
from server.jetstream._hub cimport ConsumerHub
from server.jetstream._kinds cimport ENDED_ACKED, KEEP_BY_INTEREST
from server.jetstream._pending cimport PENDING, Entry
from server.jetstream._waits cimport Waits

cdef enum:
    LOOKED_AT_ONCE = 64         # between two looks at the clock

cdef int64_t SLICE_NS = 1_000_000
cdef int64_t GAP_NS = 1_000_000


cdef class Sweep:
    cdef int begin(self) except -1:
        return self.slice()

    def tick(self, int64_t now_ns):
        self.slice()

    cdef int slice(self) except -1:
        cdef Sweep kept = self      # `finish` may let go of it
        cdef int64_t end_ns = self.hub.now() + SLICE_NS
        cdef uint32_t left = self.hub.swept_at_once_max, most
        while left and not self.is_over:
            most = min(left, <uint32_t>LOOKED_AT_ONCE)
            left -= most
            if self.step(most):
                self.is_over = True
                self.finish()
            elif self.hub.now() >= end_ns:
                break
        if not self.is_over:
            self.hub.timers.arm(self, self.hub.now() + GAP_NS)
        return 0

    cdef bint step(self, uint32_t most) except -1:
        return True

    cdef int finish(self) except -1:
        return 0


@cython.no_gc_clear
cdef class StaleSweep(Sweep):
    def __init__(self, ConsumerCore core not None, uint64_t first_seq):
        self.hub = core.hub
        self.core = core
        self.restart(first_seq)

    cdef void restart(self, uint64_t first_seq) noexcept:
        """From the beginning: more may be stale than was."""
        self.first_seq = max(first_seq, self.first_seq)
        self.in_order = True
        self.number = 0
        self.at = 1

    cdef bint is_stale(self, const Entry* entry) noexcept:
        return entry.seq < self.first_seq or not self.core.store.spans.slot(entry.seq)

    cdef bint step(self, uint32_t most) except -1:
        cdef ConsumerCore core = self.core
        cdef uint32_t end, number
        cdef Entry* entry
        if core.closed:
            return True
        if self.in_order:
            return self.step_in_order(most)
        end = min(<uint64_t>self.at + most, <uint64_t>core.table.top)
        for number in range(self.at, end):
            entry = &core.table.entries[number]
            if entry.seq and not entry.flags & PENDING and self.is_stale(entry):
                core.table.settle(entry)
        self.at = end
        return self.at >= core.table.top

    cdef bint step_in_order(self, uint32_t most) except -1:
        """Those pending, oldest first: so the floors move as with single removals."""
        cdef ConsumerCore core = self.core
        cdef uint32_t number = self.number
        cdef uint64_t seq, consumer_seq
        cdef Entry* entry
        if number == 0 or number >= core.table.top or core.table.entries[number].seq != self.seq or (
            not core.table.entries[number].flags & PENDING
        ):
            number = core.table.oldest_entry
        while number and most:
            most -= 1
            entry = &core.table.entries[number]
            number = entry.newer
            if self.is_stale(entry):
                seq, consumer_seq = entry.seq, entry.consumer_seq
                core.acked_wall_ns = self.hub.now_ns + self.hub.wall_offset_ns
                core.table.settle(entry)
                core.move_floor(consumer_seq, seq)
        self.number = number
        if number:
            self.seq = core.table.entries[number].seq
            return False
        self.in_order = False
        return core.table.known == core.table.pending

    cdef int finish(self) except -1:
        """None of those is left: the floors follow."""
        cdef ConsumerCore core = self.core
        if core.closed:
            return 0
        if core.floor_seq + 1 < self.first_seq:
            core.floor_seq = self.first_seq - 1
        if core.table.oldest() == NULL:
            core.floor_consumer_seq = core.next_consumer_seq - 1
            core.floor_seq = max(core.next_seq - 1, core.floor_seq)
            core.delivered_seq = max(core.delivered_seq, core.floor_seq)
        core.note_moved()
        return core.wake()


cdef int settle_stale(ConsumerCore core, uint64_t first_seq) except -1:
    if core.delivered_seq < first_seq and core.table.known:
        core.acked_wall_ns = core.hub.now_ns + core.hub.wall_offset_ns
        core.table.clear()
    if core.stale is not None and not core.stale.is_over:
        core.stale.restart(first_seq)
        return 0
    core.stale = StaleSweep(core, first_seq)
    return core.stale.begin()


cdef bint end_up_to(ConsumerCore core, uint64_t seq, uint64_t consumer_seq) except -1:
    cdef Entry* entry
    cdef bint is_told
    if consumer_seq <= core.floor_consumer_seq or seq <= core.floor_seq:
        return False
    if consumer_seq >= core.next_consumer_seq:
        return False
    core.acked_wall_ns = core.hub.now_ns + core.hub.wall_offset_ns
    entry = core.table.find(seq)
    is_told = entry != NULL and entry.consumer_seq == consumer_seq
    if core.acked is not None and not core.acked.is_over:
        core.acked.seq = seq
        is_told = False
    elif not end_oldest(core, seq, LOOKED_AT_ONCE):
        core.acked = AckedSweep(core, seq)
        core.acked.begin()
        is_told = is_told and core.acked.is_over
    core.floor_seq = seq
    core.floor_consumer_seq = consumer_seq
    if not is_told:
        # Single changes do not say where the floors are.
        core.note_moved()
    return True


cdef bint end_oldest(ConsumerCore core, uint64_t seq, uint32_t most) except -1:
    """Up to `most` of those acknowledged up to `seq` go; whether none is left."""
    cdef uint64_t each, floor_seq = core.floor_seq
    cdef uint64_t floor_consumer_seq = core.floor_consumer_seq
    cdef Entry* entry = core.table.oldest()
    while entry != NULL and entry.seq <= seq and most:
        most -= 1
        each = entry.seq
        core.end_entry(entry, ENDED_ACKED, "")
        core.feed.settled(each)
        entry = core.table.oldest()
    # The acknowledgement says where the floors are.
    core.floor_seq = floor_seq
    core.floor_consumer_seq = floor_consumer_seq
    return entry == NULL or entry.seq > seq


@cython.no_gc_clear
cdef class AckedSweep(Sweep):
    def __init__(self, ConsumerCore core not None, uint64_t seq):
        self.hub = core.hub
        self.core = core
        self.seq = seq

    cdef bint step(self, uint32_t most) except -1:
        if self.core.closed:
            return True
        return end_oldest(self.core, self.seq, most)

    cdef int finish(self) except -1:
        return self.core.wake()


cdef int change_waits(ConsumerCore core, Waits waits) except -1:
    if core.retimed is not None:
        core.next_waits = waits     # when all are timed by those before
        return 0
    core.next_waits = None
    if core.table.known:
        core.retimed = RetimedSweep(core)
    core.table.change_wheel(waits.shortest_ns)
    core.waits = waits
    return 0 if core.retimed is None else core.retimed.begin()


@cython.no_gc_clear
cdef class RetimedSweep(Sweep):
    def __init__(self, ConsumerCore core not None):
        self.hub = core.hub
        self.core = core
        self.before = core.waits
        self.at = 1

    cdef bint step(self, uint32_t most) except -1:
        cdef ConsumerCore core = self.core
        cdef uint32_t number, end
        cdef Entry* entry
        if core.closed:
            return True
        end = min(<uint64_t>self.at + most, <uint64_t>core.table.top)
        for number in range(self.at, end):
            entry = &core.table.entries[number]
            if core.table.is_on_old_wheel(entry):
                core.table.postpone(entry, entry.due_ns + (
                    core.waits.after(entry.redeliveries) - self.before.after(entry.redeliveries)
                ))
        self.at = end
        core.arm(core.table.next_due())
        return self.at >= core.table.top

    cdef int finish(self) except -1:
        cdef ConsumerCore core = self.core
        core.retimed = None
        if core.closed:
            return 0
        core.table.drop_old_wheel()
        if core.next_waits is not None:
            change_waits(core, core.next_waits)
        return 0


@cython.no_gc_clear
cdef class UnwantedSweep(Sweep):
    def __init__(self, StreamFeed feed not None, uint64_t first, uint64_t last):
        self.hub = feed.hub
        self.feed = feed
        self.at = first
        self.last = last

    cdef bint step(self, uint32_t most) except -1:
        cdef StreamFeed feed = self.feed
        cdef uint32_t looked
        cdef uint64_t seq
        if feed.is_closed or feed.retention != KEEP_BY_INTEREST:
            return True
        for looked in range(most):
            seq = feed.store.spans.next_live(max(self.at, feed.store.first_seq))
            if seq == 0 or seq > self.last:
                return True
            self.at = seq + 1
            if not feed.is_wanted(seq, None):
                feed.remove(seq)
        return False
