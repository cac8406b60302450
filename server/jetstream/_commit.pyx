# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""When stored messages become durable: one commit of the disk for all streams of a turn.

Phase 4 of a turn hands everything written in it to the data directory as one batch. When the disk
has it, `completed` moves each stream's durable mark and its answers leave. Streams in memory are
released at the end of the turn; so are those of a directory that syncs lazily, if the batch was small
enough to be written by then: nothing leaves that a killed process would lose.

A turn for which nobody waits (publishes without a reply, to streams without consumers) is put off
for PUT_OFF_S: each sync has its price, and many of them may share one. Whatever else is written
meanwhile takes it along, and a stream with more than PUT_OFF_MESSAGES of them does not wait: it would
come near the bound of what may be under way. And while the disk works on a batch, the next one stays open for the turns
that come: it could not be begun before.

When more is on its way to the disk than the data directory wants to hold, publishers to its streams are read
no further until it is less. So a slow disk slows those who fill it, and nobody else.
"""
from collections import deque

from server.core._connection cimport HOLD_DISK, Connection
from storage._blockhome cimport BlockHome

cdef enum:
    DISK_PHASE = 4

cdef enum:
    PUT_OFF_MESSAGES = 1024

PUT_OFF_S = 0.008


cdef class Backpressure:
    def __cinit__(self):
        self.held = []

    cdef int hold(self, void* origin) except -1:
        """`origin` is the one of a message."""
        cdef Connection producer = <Connection>origin
        if not producer.holds & HOLD_DISK:
            self.held.append(producer)
            producer.hold(HOLD_DISK)
        return 0

    cdef int let_go(self) except -1:
        """They go on with what was kept of their input; that may fill the disk again."""
        cdef Connection producer
        self.is_on = False
        held, self.held = self.held, []
        for producer in held:
            producer.unhold(HOLD_DISK)
        return 0


cdef class Writer(Sink):
    def __init__(self, bytes name not None, StreamStore store, bint in_memory):
        self.name = name
        self.store = store
        self.in_memory = in_memory
        if store is not None:
            self.durable_seq = store.last_seq

    @property
    def last_seq(self):
        return self.store.last_seq

    cpdef close_turn(self):
        pass

    cpdef bint release(self, uint64_t seq) except -1:
        return False

    cdef bint is_awaited(self) noexcept:
        """Somebody wants to know when what was written is durable."""
        return True

    cdef int give_up(self) except -1:
        """The disk is down: whoever waits for it is told so."""
        return 0


cdef class LocalCommit:
    def __init__(self, Turn turn not None, directory=None, log=None, bint lazy=False):
        self.turn = turn
        self.phase = turn.phase(DISK_PHASE, self.run)
        self.directory = directory
        self.log = log
        self.lazy = lazy
        self.written = []
        self.waiting = []
        self.writers = set()
        self.stopped = {}
        self.asked = []
        self.settling = deque()
        self.pressure = Backpressure()

    def adopt(self, Writer writer not None):
        self.writers.add(writer)
        if not writer.in_memory:
            writer.pressure = self.pressure
        if self.failed and not writer.in_memory:
            writer.down = self.failure

    def mark(self):
        self.wanted = True
        self.phase.mark()

    def dirty(self, Writer writer not None):
        self.written.append(writer)
        self.phase.mark()

    def broken(self, Writer writer not None, error):
        """An invariant or the machine: that stream stores nothing more, and says so."""
        writer.down = f"stream is down: {error}"
        if not writer.forgotten:
            self.stopped[writer] = str(error) or repr(error)
        if self.log is not None:
            self.log("error", f"JetStream stream {writer.name.decode()!r} is down: {error!r}")

    def when_settled(self, then):
        self.asked.append(then)
        self.phase.mark()

    def run(self):
        """The end of a turn."""
        cdef list written = self.written
        cdef Writer writer
        cdef bint wanted = self.wanted or not written or len(self.asked) > 0 or self.ask_later is None
        cdef bint on_disk = False
        self.written = []
        for writer in written:
            if not writer.forgotten:
                writer.close_turn()
                if not writer.in_memory:
                    on_disk = True
                    wanted = wanted or writer.is_awaited() or (
                        writer.store.last_seq - self.durable_seq(writer) > PUT_OFF_MESSAGES)
        if not wanted:
            if on_disk:
                self.put_off()
        elif not self.keeps_open():
            self.hand_over()
        for writer in written:
            if self.failed or self.durable_seq(writer) >= writer.store.last_seq:
                self.release(writer)
            else:
                self.wait_for_disk(writer)
        self.settle()

    cdef bint keeps_open(self) except -1:
        """Whether the batch waits for the disk to be done with another; `completed` sees to it then."""
        if self.directory is None or self.lazy or self.failed or not self.directory.is_busy:
            return False
        self.is_open = True
        return True

    cdef int hand_over(self) except -1:
        """The batch goes to the disk; those who asked hear when it lasts."""
        cdef uint64_t ticket = self.submit()
        self.pressure.is_on = self.pressure.is_on or (ticket != 0 and self.directory.congested)
        asked, self.asked, self.wanted, self.is_open = self.asked, [], False, False
        for then in asked:
            self.settling.append((ticket, then))
        if self.lazy and self.directory is not None and not self.failed and self.needs_bell(ticket, len(asked) > 0):
            self.directory.hurry()
        return 0

    cdef int feel_pressure(self) except -1:
        """The disk has finished something: perhaps enough."""
        if self.pressure.is_on and (self.failed or not self.directory.congested):
            self.pressure.let_go()
        return 0

    cdef bint needs_bell(self, uint64_t ticket, bint is_asked) except -1:
        """Whether something has come about, as a small lazy batch is written, that only `completed` tells others."""
        if is_asked or self.directory.failure is not None:
            return True
        return len(self.waiting) > 0 and <uint64_t>self.directory.written_ticket >= ticket

    cdef int put_off(self) except -1:
        if not self.is_put_off:
            self.is_put_off = True
            self.ask_later(PUT_OFF_S, self.end_put_off)
        return 0

    def end_put_off(self):
        self.is_put_off = False
        if not self.keeps_open():
            self.hand_over()

    cdef uint64_t submit(self) except? 0:
        """The ticket that covers all that was written; 0: there is nothing to wait for."""
        if self.directory is None or self.failed:
            return 0
        try:
            return self.directory.commit_lazily() if self.lazy else self.directory.commit()
        except OSError as error:
            self.fail(str(error))
            return 0

    cdef int settle(self) except -1:
        cdef uint64_t settled
        if not self.settling:
            return 0
        settled = 0 if self.directory is None else self.directory.settled_ticket
        while self.settling and (self.failed or <uint64_t>self.settling[0][0] <= settled):
            self.settling.popleft()[1](self.failure)
        return 0

    cdef int wait_for_disk(self, Writer writer) except -1:
        if not writer.waits and not writer.forgotten:
            writer.waits = True
            self.waiting.append(writer)
        return 0

    cdef int release(self, Writer writer) except -1:
        """What it waits for has perhaps come. Its trouble is its own: others are released too."""
        cdef bint more = False
        if writer.forgotten:
            return 0
        try:
            more = writer.release(self.durable_seq(writer))
            if self.failed and not writer.in_memory:
                more = False
                writer.give_up()
        except Exception as error:
            self.broken(writer, error)
        if more:
            self.wait_for_disk(writer)
        return 0

    cdef uint64_t durable_seq(self, Writer writer) noexcept:
        cdef uint64_t durable_seq = writer.durable_seq
        if writer.in_memory:
            return writer.store.last_seq
        if type(writer.store.home) is BlockHome:
            return max(durable_seq, (<BlockHome>writer.store.home).durable_seq)
        return durable_seq

    def completed(self):
        """The disk has finished something: the loop calls it for the directory's descriptors."""
        cdef list waiting = self.waiting
        cdef uint64_t durable_seq
        cdef Writer writer
        self.directory.poll()
        if self.directory.failure is not None and not self.failed:
            self.fail(self.directory.failure)
        if self.is_open and not self.keeps_open():
            self.hand_over()
        self.waiting = []
        for writer in waiting:
            if writer.forgotten:
                continue
            durable_seq = self.durable_seq(writer)
            if self.failed or durable_seq > writer.durable_seq or durable_seq >= writer.store.last_seq:
                writer.waits = False
                self.release(writer)
            else:
                self.waiting.append(writer)
        self.settle()
        self.feel_pressure()
        self.turn.run()

    def catch_up(self):
        if self.directory is not None and not self.failed:
            self.directory.catch_up()
            self.completed()

    def maintain(self):
        """Now and then: blocks that are mostly dead, or to be compressed, have their turn."""
        if self.directory is not None and not self.failed:
            self.directory.maintain()
            self.phase.mark()
            self.turn.run()

    def sync(self):
        """A lazy directory's interval is over: what was written becomes durable."""
        if self.directory is None or self.failed:
            return
        try:
            self.directory.sync()
        except OSError as error:
            self.fail(str(error))

    def close(self):
        """The directory is about to be closed: that makes durable what was written."""
        self.turn.forget(self.phase)
        self.directory = None
        self.pressure.let_go()

    def forget(self, Writer writer not None):
        writer.forgotten = True
        self.writers.discard(writer)
        self.stopped.pop(writer, None)

    cdef int fail(self, str why) except -1:
        """What is not durable by now is never acknowledged; no stream on disk takes more."""
        cdef Writer writer
        self.failed, self.failure = True, why
        for writer in self.writers:
            if not writer.in_memory:
                writer.down = why
        if self.log is not None:
            self.log("error", f"JetStream stores nothing any more: {why}")
        if self.on_failure is not None:
            self.on_failure()
        return 0
