# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Coarse timers: setting and cancelling is constant work, a tick visits one slot.

Contract: a timer belongs to its owner, who cancels it before freeing it. It fires once, in
`advance`, never before its deadline. `fire` may set or cancel any timer.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset


cdef class Wheel:
    def __cinit__(self):
        cdef int i
        for i in range(WHEEL_SLOTS):
            self.slots[i].next = self.slots[i].prev = &self.slots[i]
        self.cursor = -1

    cdef void set(self, Timer* timer, int64_t deadline_ns) noexcept:
        cdef int64_t slot = (deadline_ns >> SLOT_SHIFT) + 1
        cdef Timer* head
        timer_cancel(timer)
        timer.deadline_ns = deadline_ns
        if slot <= self.cursor:
            slot = self.cursor + 1
        head = &self.slots[slot % WHEEL_SLOTS]
        timer.prev = head.prev
        timer.next = head
        head.prev.next = timer
        head.prev = timer

    cdef void advance(self, int64_t now_ns) noexcept:
        cdef int64_t target = now_ns >> SLOT_SHIFT
        if self.cursor < 0 or target - self.cursor > WHEEL_SLOTS:
            self.cursor = max(target - WHEEL_SLOTS, <int64_t> -1)      # a machine's clock begins at 0
        while self.cursor < target:
            self.cursor += 1
            self.fire_slot(&self.slots[self.cursor % WHEEL_SLOTS], now_ns)

    cdef void fire_slot(self, Timer* head, int64_t now_ns) noexcept:
        # Taken off first, so that `fire` may put timers into this very slot.
        cdef Timer due
        cdef Timer* timer
        due.next = due.prev = &due
        timer = head.next
        cdef Timer* after
        while timer != head:
            after = timer.next
            if timer.deadline_ns <= now_ns:
                timer_cancel(timer)
                timer.prev = due.prev
                timer.next = &due
                due.prev.next = timer
                due.prev = timer
            timer = after
        while due.next != &due:
            timer = due.next
            timer_cancel(timer)
            timer.fire(timer.context, now_ns)
