# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Whether input may gather for a moment before the loop takes it.

A thousand publishers that are heard one by one wake the loop many thousand times a second, and a turn
costs more than the message that it was for. Where somebody waits for an answer or a message, that is
the price. Where nobody does, a moment's wait before each turn leaves a few turns of many messages.

Contract. Patience is for publishers who want no ack, to what nobody listens to now: nothing was
written to any connection for CALM_NS, and the loop was woken TURNS_MIN times in SPAN_NS. The first
write to anybody ends it. A server that could not read all there was has no time to wait either.
"""

cdef enum:
    SPAN_NS = 10000000
    TURNS_MIN = 8                # few enough to go on with while each is waited for
    CALM_NS = 10000000


cdef class Patience:
    cpdef void turned(self, int64_t now_ns, bint told, bint kept_up) noexcept:
        cdef int64_t span = now_ns // SPAN_NS
        if span != self.span:
            self.turns_before = self.turns if span == self.span + 1 else 0
            self.turns = 0
            self.span = span
        self.turns += 1
        self.kept_up = kept_up
        if told:
            self.told_ns = now_ns

    cpdef bint waits(self, int64_t now_ns) noexcept:
        return (
            self.kept_up
            and now_ns - self.told_ns > CALM_NS
            and now_ns // SPAN_NS - self.span <= 1
            and max(self.turns, self.turns_before) >= TURNS_MIN
        )
