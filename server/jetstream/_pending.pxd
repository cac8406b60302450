# cython: language_level=3
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t


cdef enum:
    SLOTS = 128
    PENDING = 1             # an ack is awaited
    QUEUED = 2              # waits to be delivered again
    TIMED = 4               # its ack is overdue at `due_ns`
    COUNTED = 8             # it was delivered more than once, or as often as it may be
    WHEEL = 16              # which of two wheels a timed one hangs on


# A message that was delivered. 0 is no entry.
cdef struct Entry:
    uint64_t seq
    uint64_t consumer_seq   # of its first delivery
    int64_t due_ns
    int32_t redeliveries
    uint32_t older          # those pending, in the order of their sequences
    uint32_t newer
    uint32_t next           # in the redelivery queue or in a slot of the wheel; free ones
    uint32_t prev
    uint8_t flags
    uint8_t slot


cdef class PendingTable:
    cdef Entry* entries
    cdef uint32_t capacity
    cdef uint32_t top               # entries below it were given out
    cdef uint32_t free_entry
    cdef uint32_t* index            # open addressing, entry numbers
    cdef uint32_t index_mask
    cdef uint32_t* old_index        # what is not in `index` yet: a growth goes on with each entry
    cdef uint32_t old_mask
    cdef uint32_t moved             # slots of it that were looked at
    cdef readonly uint32_t known    # entries in use
    cdef readonly uint32_t pending
    cdef readonly uint32_t redelivered
    cdef readonly uint32_t queued
    cdef uint32_t oldest_entry
    cdef uint32_t newest_entry
    cdef uint32_t queue_head
    cdef uint32_t queue_tail
    cdef uint32_t[SLOTS] slots
    cdef uint64_t[2] used_slots
    cdef uint32_t* old_slots        # of the wheel before, until nothing hangs on it; NULL: there is none
    cdef uint8_t wheel              # WHEEL or 0: what those on the wheel in use have
    cdef int64_t tick               # the wheel has been turned up to here
    cdef readonly int shift         # a tick is 2**shift nanoseconds

    cdef Entry* find(self, uint64_t seq) noexcept nogil
    cdef Entry* oldest(self) noexcept nogil
    # A delivery. `seq` is a new one, higher than all pending, or one that is known.
    cdef Entry* delivered(self, uint64_t seq, uint64_t consumer_seq, int64_t due_ns) except NULL
    # It is done with: nothing is left of it.
    cdef void settle(self, Entry* entry) noexcept nogil
    # It was delivered as often as it may be: not pending any more, its count stays.
    cdef void retire(self, Entry* entry) noexcept nogil
    cdef void requeue(self, Entry* entry) noexcept nogil
    cdef void postpone(self, Entry* entry, int64_t due_ns) noexcept nogil
    # The next one to deliver again, left in its place; NULL: none.
    cdef Entry* next_queued(self) noexcept nogil
    # Sequences that are overdue at `now_ns`, lowest first, at most `limit`; they leave the wheel.
    cdef uint32_t take_due(self, int64_t now_ns, uint64_t* out, uint32_t limit) noexcept nogil
    # When `take_due` has something to look at; 0: never.
    cdef int64_t next_due(self) noexcept nogil
    # A new wheel for other waits. What hangs on the old one is not due before it is postponed: all of it has
    # to be, and then `drop_old_wheel` comes before the next change.
    cdef int change_wheel(self, int64_t shortest_wait_ns) except -1
    cdef bint is_on_old_wheel(self, const Entry* entry) noexcept nogil
    cdef void drop_old_wheel(self) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef size_t memory_bytes(self) noexcept nogil

    cdef int grow(self) except -1
    cdef int grow_index(self) except -1
    cdef void move_index(self, uint32_t slots) noexcept nogil
    cdef void drop_old_index(self) noexcept nogil
    cdef Entry* find_in(self, const uint32_t* index, uint32_t mask, uint64_t seq) noexcept nogil
    cdef void place(self, uint32_t number) noexcept nogil
    cdef void unindex(self, uint64_t seq) noexcept nogil
    cdef void count(self, Entry* entry) noexcept nogil
    cdef void link_newest(self, uint32_t number) noexcept nogil
    cdef void unlink_order(self, Entry* entry) noexcept nogil
    cdef void leave(self, Entry* entry) noexcept nogil
    cdef void leave_slot(self, Entry* entry, uint32_t* slots) noexcept nogil
    cdef void time(self, Entry* entry, int64_t due_ns) noexcept nogil
