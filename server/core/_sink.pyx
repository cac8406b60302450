# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Everything that subscribes is a `Sink`: clients, streams, services of the server itself.

Contract: see the header. A sink never raises out of these calls.
"""


cdef class Sink:
    cdef int deliver(self, Msg* message, Sub* sub) noexcept:
        return 0

    cdef int deliver_traced(self, Msg* message, Sub* sub, object trace) noexcept:
        return self.deliver(message, sub)

    cdef void foresee(self, int step) noexcept:
        pass

    cdef void end_turn(self) noexcept:
        pass

    cdef void settle(self) noexcept:
        pass
