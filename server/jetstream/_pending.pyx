# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a consumer delivered and waits for: found by sequence, by order, by when its ack is overdue.

Contract. An entry is in the table from its first delivery until it is settled. One that is pending
hangs in the order of its sequences; it is either on the wheel (its ack wait runs) or in the
redelivery queue, never in both. One that was delivered as often as it may be is not pending, only
its count is kept. Times are arguments. A pointer to an entry holds until the next `delivered`.

The wheel has 128 slots; a tick is at most a 64th of the shortest wait, and that much late an entry
may be. Those due later than a turn of the wheel are passed over until it comes round to them.
An entry takes 48 bytes and its place in the index 6 to 16.
"""
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memset

cdef enum:
    FIRST_CAPACITY = 16
    SHIFT_MIN = 20
    SHIFT_MAX = 40
    WAIT_PARTS = 64
    MOVED_AT_ONCE = 8       # more than the slots of the old index for each entry until the next growth


cdef inline uint32_t place_of(uint64_t seq, uint32_t mask) noexcept nogil:
    return <uint32_t>((seq * 0x9E3779B97F4A7C15ULL) >> 32) & mask


cdef int by_sequence(const void* one, const void* other) noexcept nogil:
    cdef uint64_t a = (<const uint64_t*>one)[0], b = (<const uint64_t*>other)[0]
    return -1 if a < b else 1 if a > b else 0


cdef extern from *:  # not declared anew: clang refuses that of a builtin
    int count_zeros "__builtin_ctzll"(uint64_t value) noexcept nogil


cdef class PendingTable:
    def __cinit__(self):
        self.top = 1
        self.shift = SHIFT_MIN

    def __dealloc__(self):
        free(self.entries)
        free(self.index)
        free(self.old_index)
        free(self.old_slots)

    # Memory

    cdef int grow(self) except -1:
        cdef uint32_t wanted = 2 * self.capacity if self.capacity else FIRST_CAPACITY
        cdef Entry* bigger = <Entry*>realloc(self.entries, wanted * sizeof(Entry))
        if bigger == NULL:
            raise MemoryError
        self.entries = bigger
        self.capacity = wanted
        return 0

    cdef int grow_index(self) except -1:
        cdef uint32_t slots = 2 * (self.index_mask + 1) if self.index != NULL else 2 * FIRST_CAPACITY
        cdef uint32_t* bigger
        self.move_index(self.index_mask + 1)
        bigger = <uint32_t*>calloc(slots, sizeof(uint32_t))
        if bigger == NULL:
            raise MemoryError
        self.old_index, self.old_mask = self.index, self.index_mask
        self.moved = 0
        self.index = bigger
        self.index_mask = slots - 1
        return 0

    cdef void move_index(self, uint32_t slots) noexcept nogil:
        """From the smaller index to the one that took its place, so many slots of it."""
        cdef uint32_t number
        if self.old_index == NULL:
            return
        while slots and self.moved <= self.old_mask:
            number = self.old_index[self.moved]
            if number and self.entries[number].seq:
                self.place(number)
            self.moved += 1
            slots -= 1
        if self.moved > self.old_mask:
            self.drop_old_index()

    cdef void drop_old_index(self) noexcept nogil:
        free(self.old_index)
        self.old_index = NULL
        self.old_mask = 0

    cdef void place(self, uint32_t number) noexcept nogil:
        cdef uint32_t at = place_of(self.entries[number].seq, self.index_mask)
        while self.index[at]:
            if self.index[at] == number:
                return
            at = (at + 1) & self.index_mask
        self.index[at] = number

    cdef void unindex(self, uint64_t seq) noexcept nogil:
        """Those behind it that could stand nearer to their place move up."""
        cdef uint32_t mask = self.index_mask, at = place_of(seq, mask), hole, home
        while True:
            if self.index[at] == 0:
                return      # only the old index has it; it is not moved without a sequence
            if self.entries[self.index[at]].seq == seq:
                break
            at = (at + 1) & mask
        hole = at
        while True:
            at = (at + 1) & mask
            if self.index[at] == 0:
                break
            home = place_of(self.entries[self.index[at]].seq, mask)
            if ((at - home) & mask) >= ((at - hole) & mask):
                self.index[hole] = self.index[at]
                hole = at
        self.index[hole] = 0

    cdef size_t memory_bytes(self) noexcept nogil:
        cdef size_t slots = self.index_mask + 1 if self.index != NULL else 0
        if self.old_index != NULL:
            slots += self.old_mask + 1
        return self.capacity * sizeof(Entry) + slots * sizeof(uint32_t)

    # One message

    cdef Entry* find(self, uint64_t seq) noexcept nogil:
        cdef Entry* entry
        if self.known == 0 or seq == 0:
            return NULL
        entry = self.find_in(self.index, self.index_mask, seq)
        if entry == NULL and self.old_index != NULL:
            entry = self.find_in(self.old_index, self.old_mask, seq)
        return entry

    cdef inline Entry* find_in(self, const uint32_t* index, uint32_t mask, uint64_t seq) noexcept nogil:
        cdef uint32_t at = place_of(seq, mask), number
        while True:
            number = index[at]
            if number == 0:
                return NULL
            if self.entries[number].seq == seq:
                return &self.entries[number]
            at = (at + 1) & mask

    cdef Entry* oldest(self) noexcept nogil:
        return &self.entries[self.oldest_entry] if self.oldest_entry else NULL

    cdef Entry* delivered(self, uint64_t seq, uint64_t consumer_seq, int64_t due_ns) except NULL:
        cdef Entry* entry = self.find(seq)
        cdef uint32_t number
        if entry != NULL:
            self.leave(entry)
            entry.redeliveries += 1
            if entry.redeliveries > 0:
                self.count(entry)
            self.time(entry, due_ns)
            return entry
        if self.free_entry:
            number = self.free_entry
            self.free_entry = self.entries[number].next
        else:
            if self.top >= self.capacity:
                self.grow()
            number = self.top
            self.top += 1
        if self.index == NULL or 4 * self.known >= 3 * (self.index_mask + 1):
            self.grow_index()
        self.move_index(MOVED_AT_ONCE)
        entry = &self.entries[number]
        memset(entry, 0, sizeof(Entry))
        entry.seq = seq
        entry.consumer_seq = consumer_seq
        self.place(number)
        self.known += 1
        self.link_newest(number)
        self.time(entry, due_ns)
        return entry

    cdef void settle(self, Entry* entry) noexcept nogil:
        cdef uint32_t number = <uint32_t>(entry - self.entries)
        self.leave(entry)
        if entry.flags & PENDING:
            self.unlink_order(entry)
        if entry.flags & COUNTED:
            self.redelivered -= 1
        self.unindex(entry.seq)
        entry.flags = 0
        entry.seq = 0
        entry.next = self.free_entry
        self.free_entry = number
        self.known -= 1
        if self.known == 0:
            self.drop_old_index()
            self.top = 1
            self.free_entry = 0

    cdef void retire(self, Entry* entry) noexcept nogil:
        self.leave(entry)
        if entry.flags & PENDING:
            self.unlink_order(entry)
        self.count(entry)

    cdef void count(self, Entry* entry) noexcept nogil:
        if not entry.flags & COUNTED:
            entry.flags |= COUNTED
            self.redelivered += 1

    # The order of delivery

    cdef void link_newest(self, uint32_t number) noexcept nogil:
        cdef Entry* entry = &self.entries[number]
        entry.flags |= PENDING
        entry.older = self.newest_entry
        entry.newer = 0
        if self.newest_entry:
            self.entries[self.newest_entry].newer = number
        else:
            self.oldest_entry = number
        self.newest_entry = number
        self.pending += 1

    cdef void unlink_order(self, Entry* entry) noexcept nogil:
        if entry.older:
            self.entries[entry.older].newer = entry.newer
        else:
            self.oldest_entry = entry.newer
        if entry.newer:
            self.entries[entry.newer].older = entry.older
        else:
            self.newest_entry = entry.older
        entry.flags &= ~PENDING
        self.pending -= 1

    # The wheel and the redelivery queue

    cdef void leave(self, Entry* entry) noexcept nogil:
        """From the queue or the wheel, if it is on one of them."""
        if entry.flags & QUEUED:
            if entry.prev:
                self.entries[entry.prev].next = entry.next
            else:
                self.queue_head = entry.next
            if entry.next:
                self.entries[entry.next].prev = entry.prev
            else:
                self.queue_tail = entry.prev
            self.queued -= 1
        elif entry.flags & TIMED:
            self.leave_slot(entry, self.old_slots if self.is_on_old_wheel(entry) else self.slots)
        entry.flags &= ~(QUEUED | TIMED)

    cdef void leave_slot(self, Entry* entry, uint32_t* slots) noexcept nogil:
        """The first of a slot knows its last one as `prev`."""
        cdef uint32_t first = slots[entry.slot]
        if &self.entries[first] != entry:
            self.entries[entry.prev].next = entry.next
            self.entries[entry.next if entry.next else first].prev = entry.prev
            return
        slots[entry.slot] = entry.next
        if entry.next:
            self.entries[entry.next].prev = entry.prev
        elif slots == self.slots:
            self.used_slots[entry.slot >> 6] &= ~(<uint64_t>1 << (entry.slot & 63))

    cdef void requeue(self, Entry* entry) noexcept nogil:
        """To the end of the queue, unless it is in it already."""
        cdef uint32_t number = <uint32_t>(entry - self.entries)
        if entry.flags & QUEUED:
            return
        self.leave(entry)
        entry.flags |= QUEUED
        entry.prev = self.queue_tail
        entry.next = 0
        if self.queue_tail:
            self.entries[self.queue_tail].next = number
        else:
            self.queue_head = number
        self.queue_tail = number
        self.queued += 1

    cdef Entry* next_queued(self) noexcept nogil:
        return &self.entries[self.queue_head] if self.queue_head else NULL

    cdef void postpone(self, Entry* entry, int64_t due_ns) noexcept nogil:
        self.leave(entry)
        self.time(entry, due_ns)

    cdef void time(self, Entry* entry, int64_t due_ns) noexcept nogil:
        cdef uint32_t number = <uint32_t>(entry - self.entries)
        cdef int64_t tick = due_ns >> self.shift
        cdef uint32_t first
        cdef uint8_t slot
        entry.due_ns = due_ns
        if tick <= self.tick:
            tick = self.tick + 1
        slot = <uint8_t>(tick & (SLOTS - 1))
        entry.flags = entry.flags & ~WHEEL | TIMED | self.wheel
        entry.slot = slot
        entry.next = 0
        first = self.slots[slot]
        if first:
            entry.prev = self.entries[first].prev
            self.entries[entry.prev].next = number
            self.entries[first].prev = number
        else:
            self.slots[slot] = entry.prev = number
        self.used_slots[slot >> 6] |= <uint64_t>1 << (slot & 63)

    cdef uint32_t take_due(self, int64_t now_ns, uint64_t* out, uint32_t limit) noexcept nogil:
        cdef int64_t end = (now_ns >> self.shift) - 1
        cdef uint32_t taken = 0, number, after
        cdef Entry* entry
        if end - self.tick > SLOTS:
            self.tick = end - SLOTS
        while self.tick < end:
            number = self.slots[(self.tick + 1) & (SLOTS - 1)]
            while number:
                entry = &self.entries[number]
                after = entry.next
                if entry.due_ns <= now_ns:
                    if taken == limit:
                        # The rest of this slot comes with the next call.
                        qsort(out, taken, sizeof(uint64_t), by_sequence)
                        return taken
                    self.leave(entry)
                    out[taken] = entry.seq
                    taken += 1
                number = after
            self.tick += 1
        if taken > 1:
            qsort(out, taken, sizeof(uint64_t), by_sequence)
        return taken

    cdef int64_t next_due(self) noexcept nogil:
        """The end of the first slot in use."""
        cdef int64_t tick = self.tick + 1
        cdef int at = <int>(tick & (SLOTS - 1)), word, turned
        cdef uint64_t bits
        if self.used_slots[0] == 0 and self.used_slots[1] == 0:
            return 0
        # Three looks: the rest of this word, the other one, the start of this word.
        word = at >> 6
        bits = self.used_slots[word] >> (at & 63)
        if bits:
            return (tick + count_zeros(bits) + 1) << self.shift
        turned = 64 - (at & 63)
        bits = self.used_slots[word ^ 1]
        if bits:
            return (tick + turned + count_zeros(bits) + 1) << self.shift
        return (tick + turned + 64 + count_zeros(self.used_slots[word]) + 1) << self.shift

    cdef int change_wheel(self, int64_t shortest_wait_ns) except -1:
        cdef int shift = SHIFT_MIN
        while shift < SHIFT_MAX and (shortest_wait_ns // WAIT_PARTS) >> (shift + 1):
            shift += 1
        if self.known:
            self.old_slots = <uint32_t*>malloc(sizeof(self.slots))
            if self.old_slots == NULL:
                raise MemoryError
            memcpy(self.old_slots, self.slots, sizeof(self.slots))
            self.wheel ^= WHEEL
        memset(self.slots, 0, sizeof(self.slots))
        self.used_slots[0] = self.used_slots[1] = 0
        self.tick = (self.tick << self.shift) >> shift
        self.shift = shift
        return 0

    cdef bint is_on_old_wheel(self, const Entry* entry) noexcept nogil:
        return entry.flags & TIMED and (entry.flags & WHEEL) != self.wheel

    cdef void drop_old_wheel(self) noexcept nogil:
        free(self.old_slots)
        self.old_slots = NULL

    cdef void clear(self) noexcept nogil:
        free(self.entries)
        free(self.index)
        self.drop_old_index()
        self.drop_old_wheel()
        self.entries = NULL
        self.index = NULL
        self.capacity = self.index_mask = self.free_entry = 0
        self.top = 1
        self.known = self.pending = self.redelivered = self.queued = 0
        self.oldest_entry = self.newest_entry = self.queue_head = self.queue_tail = 0
        memset(self.slots, 0, sizeof(self.slots))
        self.used_slots[0] = self.used_slots[1] = 0


cdef class PendingProbe:
    """The table as tests see it: sequences in, sequences out."""

    cdef PendingTable table

    def __init__(self, int64_t shortest_wait_ns=0):
        self.table = PendingTable()
        self.table.change_wheel(shortest_wait_ns)

    def delivered(self, uint64_t seq, uint64_t consumer_seq, int64_t due_ns):
        return self.table.delivered(seq, consumer_seq, due_ns).redeliveries

    def settle(self, uint64_t seq):
        cdef Entry* entry = self.table.find(seq)
        if entry != NULL:
            self.table.settle(entry)
        return entry != NULL

    def retire(self, uint64_t seq):
        self.table.retire(self.table.find(seq))

    def requeue(self, uint64_t seq):
        self.table.requeue(self.table.find(seq))

    def postpone(self, uint64_t seq, int64_t due_ns):
        self.table.postpone(self.table.find(seq), due_ns)

    def take_due(self, int64_t now_ns, uint32_t limit=256):
        cdef uint64_t[256] out
        cdef uint32_t count = self.table.take_due(now_ns, out, min(limit, 256))
        return [out[i] for i in range(count)]

    def next_due(self):
        return self.table.next_due()

    def change_wheel(self, int64_t wait_ns):
        """What is timed has to be postponed before the next change."""
        self.table.drop_old_wheel()
        self.table.change_wheel(wait_ns)

    def is_on_old_wheel(self, uint64_t seq):
        return self.table.is_on_old_wheel(self.table.find(seq))

    def clear(self):
        self.table.clear()

    @property
    def slots_to_move(self):
        """Of the smaller index, to the one that took its place."""
        return 0 if self.table.old_index == NULL else self.table.old_mask + 1 - self.table.moved

    @property
    def queue(self):
        cdef uint32_t number = self.table.queue_head
        found = []
        while number:
            found.append(self.table.entries[number].seq)
            number = self.table.entries[number].next
        return found

    @property
    def order(self):
        cdef uint32_t number = self.table.oldest_entry
        found = []
        while number:
            found.append((self.table.entries[number].seq, self.table.entries[number].consumer_seq))
            number = self.table.entries[number].newer
        return found

    @property
    def counts(self):
        return (self.table.known, self.table.pending, self.table.redelivered, self.table.queued)

    @property
    def width_ns(self):
        return 1 << self.table.shift

    @property
    def memory_bytes(self):
        return self.table.memory_bytes()
