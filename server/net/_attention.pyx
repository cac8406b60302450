# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Whether the loop looks for input again at once, instead of sleeping until some comes.

A client that waits for each answer speaks again within microseconds, while a sleeping core needs
20 to 40 of them to wake: longer than all that is done for a message. So in a lively exchange the
loop stays awake for AWAKE_NS behind each answer.

Contract. An exchange is turns that each read from one connection, of at most two in all, and that
sent something. After PAUSE_MIN of them comes a try; the loop stays awake as long as the next part
comes in time. One that does not ends it, and unless many came before it the pause until the next
try is twice as long: whoever speaks at a slow pace costs one try in PAUSE_MAX turns. Turns of
others do not end it while they are fewer than its own.
"""

cdef enum:
    AWAKE_NS = 100000
    PAUSE_MIN = 8
    PAUSE_MAX = 4096
    CAUGHT_MANY = 64
    OTHERS_MAX = 8              # turns of others that may follow each other


cdef class Attention:
    def __init__(self):
        self.pause = self.left = PAUSE_MIN

    cpdef void heard(self, uint64_t cid, bint answered, int64_t now_ns) noexcept:
        if cid == 0 or not answered or (cid != self.first and cid != self.second):
            self.heard_other(cid)
            return
        self.heard_ns = now_ns
        if self.others_left < OTHERS_MAX:
            self.others_left += 1
        if self.awake:
            self.caught += 1
        elif self.left:
            self.left -= 1
        else:
            self.awake = True
            self.caught = 0

    cpdef void worked(self, int64_t spent_ns) noexcept:
        """Not waiting: a connection that was accepted or closed meanwhile does not use up the time to wait."""
        self.heard_ns += spent_ns

    cdef bint are_one(self, uint64_t cid, uint64_t other) noexcept:
        """Whether what both said in one turn is one exchange."""
        return cid == other or (cid == self.first and other == self.second) or (cid == self.second and other == self.first)

    cdef void heard_other(self, uint64_t cid) noexcept:
        if self.others_left:
            self.others_left -= 1
            return
        self.first, self.second = cid, self.first
        self.left = max(self.left, <uint32_t>PAUSE_MIN)
        self.awake = False

    cpdef bint lasts(self, int64_t now_ns) noexcept:
        if self.awake and now_ns - self.heard_ns > AWAKE_NS:
            self.awake = False
            self.pause = PAUSE_MIN if self.caught >= CAUGHT_MANY else min(2 * self.pause, <uint32_t>PAUSE_MAX)
            self.left = self.pause
        return self.awake
