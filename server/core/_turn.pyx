# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The end of a turn: phases that are dirty, in order; then each dirty sink once.

Contract: whoever feeds connections calls `begin`, then `run`. Work that appears outside asks the
loop, once, to run a turn soon. Subscriptions and sinks that were given up live until the turn ends.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free, realloc

from server.core._sublist cimport Sub, sub_free


cdef enum:
    PHASE_ROUNDS_MAX = 8     # phases may dirty each other; the rest waits for the next turn


cdef class Phase:
    def __init__(self, Turn turn, int order, object run):
        self.turn = turn
        self.order = order
        self.run = run

    cpdef mark(self):
        self.dirty = True
        self.turn.phase_dirty = True
        self.turn.ask()


cdef bint push(void*** items, size_t* count, size_t* capacity, void* item) noexcept:
    cdef size_t wanted
    cdef void** bigger
    if count[0] == capacity[0]:
        wanted = 2 * capacity[0] if capacity[0] else 64
        bigger = <void**> realloc(items[0], wanted * sizeof(void*))
        if bigger == NULL:
            return False
        items[0] = bigger
        capacity[0] = wanted
    items[0][count[0]] = item
    count[0] += 1
    return True


# Its attributes are needed while it is taken down.
@cython.no_gc_clear
@cython.final
cdef class Turn:
    def __cinit__(self):
        self.phases = []
        self.departed = []

    def __init__(self, call_soon=None):
        self.call_soon = call_soon

    def __dealloc__(self):
        cdef size_t i
        for i in range(self.dirty_count):
            Py_DECREF(<object> self.dirty[i])
        for i in range(self.borrower_count):
            Py_DECREF(<object> self.borrowers[i])
        free(self.dirty)
        free(self.borrowers)
        self.free_graves()

    def set_call_soon(self, call_soon):
        self.call_soon = call_soon
        self.scheduled = False
        if self.dirty_count or self.phase_dirty:
            self.ask()

    @property
    def has_loop(self):
        return self.call_soon is not None

    def phase(self, int order, run):
        cdef Phase phase = Phase(self, order, run)
        # A phase may be what makes or ends another: the list that is walked stays as it is.
        self.phases = sorted([*self.phases, phase], key=lambda each: each.order)
        return phase

    def forget(self, Phase phase):
        self.phases = [each for each in self.phases if each is not phase]

    def later(self, callback):
        self.call_soon(callback)

    cdef void add_dirty(self, Sink sink) noexcept:
        if push(&self.dirty, &self.dirty_count, &self.dirty_capacity, <void*> sink):
            Py_INCREF(sink)
        self.ask()

    cdef void add_borrower(self, Sink sink) noexcept:
        if push(&self.borrowers, &self.borrower_count, &self.borrower_capacity, <void*> sink):
            Py_INCREF(sink)

    cdef void bury(self, Sub* sub) noexcept:
        sub.sid_next = self.graves
        self.graves = sub
        self.ask()

    cdef void free_graves(self) noexcept:
        cdef Sub* sub
        while self.graves != NULL:
            sub = self.graves
            self.graves = sub.sid_next
            sub_free(sub)

    cdef void settle(self) noexcept:
        """The read buffer is about to be used again."""
        cdef size_t i
        cdef Sink sink
        for i in range(self.borrower_count):
            sink = <Sink> self.borrowers[i]
            sink.settle()
            Py_DECREF(sink)
        self.borrower_count = 0

    cdef void begin(self) noexcept:
        self.running = True

    cdef void ask(self) noexcept:
        if self.running or self.scheduled or self.call_soon is None:
            return
        self.scheduled = True
        self.call_soon(self.run)

    cdef run_phases(self):
        cdef Phase phase
        # The first is told when the others have run: nothing of a turn waits for what failed.
        cdef list failed = []
        cdef int rounds = 0
        while self.phase_dirty and rounds < PHASE_ROUNDS_MAX:
            self.phase_dirty = False
            rounds += 1
            for phase in self.phases:
                if phase.dirty:
                    phase.dirty = False
                    try:
                        phase.run()
                    except Exception as error:
                        failed.append(error)
        if failed:
            raise failed[0]

    cpdef run(self):
        cdef size_t i = 0
        cdef Sink sink
        self.running = True
        self.scheduled = False
        try:
            if self.phase_dirty:
                self.run_phases()
        finally:
            # A sink's end of turn may dirty others (a close frees room elsewhere): take them too.
            while i < self.dirty_count:
                sink = <Sink> self.dirty[i]
                i += 1
                sink.end_turn()
                Py_DECREF(sink)
            self.dirty_count = 0
            self.running = False
            self.free_graves()
            if self.departed and not self.in_batch:
                self.departed = []
        if self.phase_dirty:
            self.ask()
