from libc.stdint cimport int64_t, uint64_t


cdef struct Timer:
    Timer* next              # NULL: not on the wheel
    Timer* prev
    int64_t deadline_ns
    void (*fire)(void* context, int64_t now_ns) noexcept
    void* context


cdef enum:
    WHEEL_SLOTS = 1024
    SLOT_SHIFT = 26          # 2**26 ns, 67 ms: timers fire at most that much late


cdef class Wheel:
    cdef Timer[WHEEL_SLOTS] slots
    cdef int64_t cursor      # the slot number (not modulo) that `advance` has reached
    cdef void fire_slot(self, Timer* head, int64_t now_ns) noexcept
    cdef void set(self, Timer* timer, int64_t deadline_ns) noexcept
    cdef void advance(self, int64_t now_ns) noexcept


cdef inline void timer_cancel(Timer* timer) noexcept nogil:
    if timer.next != NULL:
        timer.next.prev = timer.prev
        timer.prev.next = timer.next
        timer.next = NULL
