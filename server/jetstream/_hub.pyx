# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""All consumers of one server: whose turn it is, what is due, what they share.

Contract. Consumers send in phase 5 of the turn only, each its share, in turn; what changed of them
is kept in phase 3. What must not be done where it happens is put off to the next phase by `tell`.
Nothing here waits: what is due hangs in `timers`, one entry for each consumer.
"""
cimport cython
from collections import deque

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, realloc

from server.core._account cimport Account
from server.core._broker cimport Broker
from server.jetstream._acksink cimport AckSink
from server.jetstream._consumer cimport ConsumerCore
from server.jetstream._keeper cimport Keeper, Place
from server.jetstream._sending cimport pump

from server.jetstream.acks import ack_place
from server.jetstream.timers import WakingTimers

cdef enum:
    KEEPING_PHASE = 3           # before the commit
    CONSUMER_PHASE = 5

cdef int64_t DORMANT_LOOK_NS = 20_000_000


@cython.no_gc_clear
cdef class ConsumerHub:
    def __init__(self, Broker broker not None, str domain="", bint long_subjects=False):
        self.broker = broker
        self.domain = domain
        self.long_subjects = long_subjects
        self.timers = WakingTimers()
        self.ready = deque()
        self.told = []
        self.ack_sinks = {}
        self.dormant = set()
        self.messages_a_turn_max = 2048
        self.messages_at_once_max = 256
        self.swept_at_once_max = 4096
        self.wall_offset_ns = broker.wall() - self.now()
        self.phase = broker.turn.phase(CONSUMER_PHASE, self.run)
        self.keeping = broker.turn.phase(KEEPING_PHASE, self.keep_all)
        self.unkept = []
        self.asking = []
        self.armed_ns = None

    def __dealloc__(self):
        free(self.text)

    cdef int64_t now(self) noexcept:
        self.now_ns = self.broker.clock()
        return self.now_ns

    cdef bytes place_of(self, Account account):
        """What stands before the stream's name where acks and flow control are answered."""
        return ack_place(self.domain, account.name) + b"." if self.long_subjects else b""

    cdef char* reserve(self, size_t count) except NULL:
        """Room for so many bytes; what stands in it stays."""
        cdef char* bigger
        if count > self.room:
            bigger = <char*>realloc(self.text, 2 * count)
            if bigger == NULL:
                raise MemoryError
            self.text = bigger
            self.room = 2 * count
        return self.text

    cdef int add_ready(self, ConsumerCore core) except -1:
        core.is_ready = True
        self.ready.append(core)
        self.phase.mark()
        return 0

    cdef int tell(self, object call, tuple arguments) except -1:
        """Call it in the next phase: nothing may be published from where something happens."""
        self.told.append((call, arguments))
        self.phase.mark()
        return 0

    cdef bint is_heard(self, ConsumerCore core, bytes event) except -1:
        cdef bytes subject = b"$JS.EVENT.ADVISORY.CONSUMER." + event + b"." + core.ack_key
        return core.account.sublist.has_interest(subject, len(subject))

    cdef AckSink acks_of(self, Account account):
        cdef AckSink found = self.ack_sinks.get(account.name)
        if found is None:
            found = self.ack_sinks[account.name] = AckSink(self, account)
        return found

    def forget_account(self, str name):
        cdef AckSink gone = self.ack_sinks.pop(name, None)
        if gone is not None:
            gone.close()

    def run(self):
        """The phase: each consumer that is ready gets its share, in turn."""
        cdef ConsumerCore core
        cdef uint32_t budget = self.messages_a_turn_max
        cdef int64_t now_ns = self.now()
        self.turn_wall_ns = self.broker.wall()
        self.wall_offset_ns = self.turn_wall_ns - now_ns
        self.run_told()
        for _ in range(len(self.ready)):
            if budget == 0:
                break
            core = self.ready.popleft()
            core.is_ready = False
            try:
                if pump(core, now_ns, &budget) and not core.is_ready and not core.closed:
                    core.is_ready = True
                    self.ready.append(core)
            except Exception as error:
                core.owner.broken(error)
        if self.ready or self.told:
            self.phase.mark()

    def run_told(self):
        told, self.told = self.told, []
        for call, arguments in told:
            try:
                call(*arguments)
            except Exception as error:
                self.broker.hooks.log("error", f"Telling of a consumer failed: {error!r}")

    # What outlives the process

    def set_book(self, book):
        self.book = book

    cdef int answer_when_kept(self, ConsumerCore core, bytes reply) except -1:
        self.asking.append((core, reply))
        self.keeping.mark()
        return 0

    def keep_soon(self):
        """Write what changed with this turn's commit."""
        if self.unkept:
            self.keeping.mark()

    def keep_all(self):
        """Changes go to the book; it is durable with the messages of this turn."""
        cdef int64_t now_ns = self.now(), wall_ns = self.broker.wall()
        unkept, self.unkept = self.unkept, []
        asking, self.asking = self.asking, []
        if self.book is None or self.book.down is not None:
            # The disk is gone, and has said so: nothing is kept, and no ack is said to be.
            return
        for core in unkept:
            try:
                self.keep_one(core, now_ns, wall_ns)
            except Exception as error:
                core.owner.broken(error)
        if asking:
            self.book.when_durable(lambda: self.answer(asking))

    cdef int keep_one(self, ConsumerCore core, int64_t now_ns, int64_t wall_ns) except -1:
        cdef Place place
        cdef Keeper keeper = core.keeper
        cdef bint whole
        if keeper is None:
            return 0
        core.write_place(&place)
        records = keeper.take(&place, core.table, now_ns, wall_ns)
        written = self.book.write(keeper.key, records)
        whole = keeper.since_whole == 0
        if whole:
            self.book.forget(keeper.records)
            keeper.records = written
        else:
            keeper.records += written
        return 0

    def answer(self, asking):
        cdef ConsumerCore core
        for core, reply in asking:
            core.outlet.send_empty(reply)

    def run_timers(self):
        """What is due by now."""
        self.timers.run(self.now())

    # Push consumers to which nobody listens: the trie tells nobody who comes, so look.

    def add_dormant(self, ConsumerCore core not None):
        self.dormant.add(core)
        self.timers.arm(self, self.now() + DORMANT_LOOK_NS)

    def tick(self, int64_t now_ns):
        for core in list(self.dormant):
            core.look_for_listeners()
        if self.dormant:
            self.timers.arm(self, now_ns + DORMANT_LOOK_NS)

    def close(self):
        for sink in self.ack_sinks.values():
            sink.close()
        self.ack_sinks.clear()
        self.broker.turn.forget(self.phase)
        self.broker.turn.forget(self.keeping)
