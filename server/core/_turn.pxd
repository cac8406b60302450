from libc.stdint cimport uint32_t

from server.core._sink cimport Sink
from server.core._sublist cimport Sub


cdef class Phase:
    cdef Turn turn
    cdef readonly int order
    cdef object run
    cdef bint dirty
    cpdef mark(self)


cdef class Turn:
    cdef object call_soon
    cdef bint scheduled
    cdef bint running
    cdef bint phase_dirty
    cdef list phases
    cdef void** dirty            # sinks with output, each once, referenced
    cdef size_t dirty_count
    cdef size_t dirty_capacity
    cdef void** borrowers        # sinks that refer to a read buffer
    cdef size_t borrower_count
    cdef size_t borrower_capacity
    cdef Sub* graves             # linked by sid_next; freed when nobody walks results
    cdef list departed           # closed sinks that an event may still name
    cdef bint in_batch           # ... of a batch that is not yet worked off

    cdef void free_graves(self) noexcept
    cdef run_phases(self)
    cdef void add_dirty(self, Sink sink) noexcept
    cdef void add_borrower(self, Sink sink) noexcept
    cdef void bury(self, Sub* sub) noexcept
    cdef void settle(self) noexcept
    # Between `begin` and `run` nothing asks the loop for a turn.
    cdef void begin(self) noexcept
    cdef void ask(self) noexcept
    cpdef run(self)
