# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How long a consumer waits for an ack: the same each time, or longer after each redelivery."""
from libc.stdlib cimport free, malloc

# Answers to flow control come when they come: nothing is ever overdue.
cdef int64_t NEVER_NS = 1 << 60


cdef class Waits:
    def __init__(self, config not None):
        cdef uint32_t i
        self.ack_wait_ns = NEVER_NS if config.ack_policy == "flow_control" else config.ack_wait
        self.shortest_ns = self.ack_wait_ns
        if not config.backoff:
            return
        self.backoff_ns = <int64_t*>malloc(len(config.backoff) * sizeof(int64_t))
        if self.backoff_ns == NULL:
            raise MemoryError
        self.backoff_count = <uint32_t>len(config.backoff)
        for i in range(self.backoff_count):
            self.backoff_ns[i] = config.backoff[i]
        self.shortest_ns = min(config.backoff)

    def __dealloc__(self):
        free(self.backoff_ns)

    cdef int64_t after(self, int32_t redeliveries) noexcept nogil:
        if self.backoff_count == 0:
            return self.ack_wait_ns
        if redeliveries < 0:
            redeliveries = 0
        return self.backoff_ns[min(<uint32_t>redeliveries, self.backoff_count - 1)]
